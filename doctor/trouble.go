package doctor

import (
	"slices"

	"github.com/redlock-go/redlock/internal/quorum"
)

// trouble is a reason why a node takes no part in locks. The words of the server or the client tell
// which it is.
type trouble struct {
	code    string
	said    []string // one of these words is in the error's text
	problem string   // followed by the error in parentheses
	advice  string
}

// noCluster is the advice where a node is part of a cluster.
const noCluster = "Use independent servers, with cluster-enabled no."

// noReplica is the advice where a node is a replica.
const noReplica = "Redlock needs independent masters: " +
	"make it one (REPLICAOF NO ONE), or use another server."

// troubles are looked through in this order: what is more exact comes first.
var troubles = []trouble{{
	"noperm",
	quorum.Lasting["noperm"],
	"Lacks rights that a lock needs",
	"", // made of the rights that are missing
}, {
	"command",
	[]string{"unknown command", "unsupported command"},
	"Does not know a command that a lock needs",
	"Do not rename or disable it in redis.conf. Releases and extensions are scripts, by EVAL and " +
		"EVALSHA. A proxy in between may keep it back: connect without one.",
}, {
	"noauth",
	quorum.Lasting["noauth"],
	"Asks for a password",
	"Give the client the password, and the user if it is not the default one.",
}, {
	"wrongpass",
	quorum.Lasting["wrongpass"],
	"Does not accept the user or the password",
	"Give the client the user and the password that the server knows: " +
		"ACL LIST on the server shows the users.",
}, {
	"crossslot",
	quorum.Lasting["crossslot"],
	"Is part of a cluster, where a lock cannot use a counter that names share",
	"Use WithFencePerName in all users of a name, " +
		"or independent servers, with cluster-enabled no.",
}, {
	"moved",
	quorum.Lasting["moved"],
	"Is part of a cluster, and sends the client to another server",
	noCluster,
}, {
	"clusterdown",
	[]string{"CLUSTERDOWN"},
	"Is part of a cluster that does not serve all slots",
	noCluster,
}, {
	"loading",
	[]string{"LOADING"},
	"Is loading its data after a start",
	"Wait for the end. A server for locks alone has little to load.",
}, {
	"readonly",
	quorum.Lasting["readonly"],
	"Is a replica and refuses writes",
	noReplica,
}, {
	"oom",
	[]string{"OOM"},
	"Is out of memory",
	"Raise maxmemory or delete data, or use a server for locks alone.",
}, {
	"misconf",
	[]string{"MISCONF"},
	"Refuses writes because it cannot store its data",
	"See its log: the disk may be full, or dir may not be writable.",
}, {
	"noreplicas",
	[]string{"NOREPLICAS"},
	"Refuses writes because too few replicas are connected",
	"Set min-replicas-to-write 0: locks need no replicas.",
}, {
	"busy",
	[]string{"BUSY"},
	"Is busy with a script of another client",
	"End the script with SCRIPT KILL, and keep long scripts away from the servers for locks.",
}, {
	"maxclients",
	[]string{"max number of clients"},
	"Has reached its maximum number of clients",
	"Raise maxclients, or look for clients that do not close their connections.",
}, {
	"tls",
	[]string{"tls", "x509", "certificate"},
	"Does not agree with the client about TLS",
	"Give the client a TLS configuration for a TLS port, and none for another port. " +
		"The certificate must be valid now, for this name, " +
		"and signed by an authority that the client trusts.",
}, {
	"name",
	[]string{"no such host", "server misbehaving", "Temporary failure in name resolution"},
	"Has a name that cannot be resolved",
	"Correct the address, or the name service.",
}, {
	"refused",
	[]string{"connection refused", "actively refused"},
	"Refuses the connection",
	"Start the server, or correct the address: nothing listens there.",
}, {
	"timeout",
	[]string{
		"no answer within", "answered nothing", "i/o timeout", "deadline exceeded", "timed out",
	},
	"Does not answer in time",
	"See whether the server is down, frozen or overloaded. A firewall may drop the traffic, " +
		"or the client may speak TLS to a port without it. " +
		"If the server is only far away, raise WithNodeTimeout.",
}, {
	"closed",
	[]string{"EOF", "connection reset", "broken pipe"},
	"Closes the connection",
	"See its log. This may be a TLS port, a proxy without a server behind it, " +
		"or a server with too many clients.",
}}

// unreachable is the trouble that is none of the others.
var unreachable = trouble{
	"unreachable",
	nil,
	"Cannot take part in a lock",
	"Fix the reported error. The server's log may say more.",
}

// troubleOf tells which trouble an error speaks of.
func troubleOf(err error) trouble {
	i := slices.IndexFunc(troubles, func(t trouble) bool { return quorum.Says(err, t.said) })
	if i < 0 {
		return unreachable
	}
	return troubles[i]
}

// isDenied reports whether an ACL forbids what was asked.
func isDenied(err error) bool { return quorum.Says(err, quorum.Denials) }
