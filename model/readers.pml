/* Readers and writers: client 0 has the lock alone, 1 and 2 share it. N nodes, unbounded time and
   unboundedly many attempts, as in redlock.pml, whose parts have the same names here; fencing and
   the loss of data are left out. model/README.md says what must hold; model/run checks this file
   and its mutants. */
#define N 3
#ifndef QUORUM
#define QUORUM (N/2 + 1)
#endif
#ifndef TTL
#define TTL 3                           /* the expiry in ticks */
#endif
#ifndef SHORT
#define SHORT TTL                       /* that of client 2 */
#endif
#define DRIFT 1
#ifndef ALLOWED
#define ALLOWED DRIFT                   /* what a client subtracts for drift */
#endif

#define EACH(f) f(0) f(1) f(2)
#define VOTES(f, i) (f(0, i) + f(1, i) + f(2, i))
#define WRITER 0                        /* what a key holds: the writer's value */
#define MARKER 1                        /* readers have it */
#define FREE 2
#define ME (1 << id)
#define GOT(k, i) ((got[k] >> i) & 1)
#define ADD(set, k) set[k] = set[k] | ME
#define OUT(set, k, c) set[k] = set[k] & ~(1 << c)
#define EXPIRY(c) (c == 2 -> SHORT : TTL)

/* A node. A set of clients has bit i for client i. */
byte key[N];                            /* WRITER, MARKER or FREE */
byte left[N];                           /* ticks until it expires */
byte one[N], two[N];                    /* ticks until the seats of clients 1 and 2 end; 0: none */
byte flying[N];                         /* a SET, or share, of the present value may still arrive */
byte got[N];                            /* the vote was counted in this round */

/* A client. */
byte age[3];                            /* ticks since its round began; TTL: no round */
byte valid[3];                          /* ticks until its until; 0: does not hold the lock */
bit  passed[3];                         /* one whom it excludes was granted the lock since */
byte i, t;                              /* scratch, 0 between steps */

#define IN_TIME (age[id] < EXPIRY(id) - ALLOWED)
#define REMAINING (EXPIRY(id) - ALLOWED - age[id])
#define ALONE ((valid[0] == 0 || (valid[1] == 0 && valid[2] == 0)) || MEDDLED)
#define EXCLUDE if :: id == 0 -> passed[1] = 1; passed[2] = 1 :: else -> passed[0] = 1 fi; \
	passed[id] = 0
#ifdef DELETED
#define MEDDLED true
#else
#define MEDDLED false
#endif

/* Nodes are interchangeable: keeping them sorted leaves one of up to N! equal states. */
#define KEY(k) (key[k] + 4*left[k] + 16*one[k] + 64*two[k] + 256*flying[k] + 2048*got[k])
#define SWAP(a) t = a[i]; a[i] = a[i+1]; a[i+1] = t;
#define UP(k) i = k; if :: KEY(i) > KEY(i+1) -> \
	SWAP(key) SWAP(left) SWAP(one) SWAP(two) SWAP(flying) SWAP(got) :: else fi;
#define SORTED d_step { UP(0) UP(1) UP(0) i = 0; t = 0 }

#define SEAT(k, c) (c == 1 -> one[k] : two[k])
#define SITS(k, c, d) if :: c == 1 -> one[k] = d :: else -> two[k] = d fi
#define CLEAR(k) one[k] = 0; two[k] = 0
#define EMPTY(k) (one[k] == 0 && two[k] == 0)

/* A key, or a seat, lives for an expiry from now. Node clocks may run fast: it may end DRIFT ticks
   early. The key never ends before a seat. */
#ifdef SHORT_KEY
#define LONGER(k) true
#else
#define LONGER(k) (t > left[k])
#endif
inline lives(k) {
	if :: t = EXPIRY(id) :: t = EXPIRY(id) - DRIFT fi;
	if
	:: id != 0 -> SITS(k, id, t); if :: LONGER(k) -> left[k] = t :: else fi
	:: else -> left[k] = t
	fi;
	t = 0
}

/* Whether node k has what client c wrote there, and whether it lets client id in. */
#define HAS(k, c) (c == 0 -> key[k] == WRITER : (key[k] == MARKER && SEAT(k, c) > 0))
#ifdef IGNORE
#define OPEN(k) (key[k] == FREE || id != 0)
#else
#define OPEN(k) (key[k] == FREE || id != 0 && key[k] == MARKER)
#endif
#ifdef KEEP_SEATS
#define LETS(k) key[k] = (id == 0 -> WRITER : MARKER); lives(k)
#else
#define LETS(k) \
	if :: id != 0 && key[k] != MARKER -> CLEAR(k) :: else fi; \
	key[k] = (id == 0 -> WRITER : MARKER); lives(k)
#endif

/* A SET, or share, of the running attempt arrives; its reply too, or not. */
#define SET(k) :: atomic { age[id] < EXPIRY(id) && (flying[k] & ME) && OPEN(k) -> \
		printf("  client %d: SET at node %d\n", id, k); LETS(k); OUT(flying, k, id); \
		if :: ADD(got, k) :: skip fi; SORTED }

/* It arrives so late that nobody counts it: a straggler or healing of a lock that is held, a
   zombie of one that is not, which leaves the marker to nobody. */
#ifdef PUNCTUAL
#define LATE(k)
#else
#define LATE(k) :: atomic { (flying[k] & ME) && OPEN(k) -> \
		printf("  client %d: late SET at node %d\n", id, k); LETS(k); OUT(flying, k, id); \
		SORTED }
#endif
#define ZOMBIE(k) :: atomic { age[id] == TTL && (flying[k] & ME) && OPEN(k) -> \
		printf("  client %d: zombie at node %d\n", id, k); LETS(k); OUT(flying, k, id); SORTED }

/* An extension, where the node has what is extended; the reply arrives or not. */
#define EXTEND(k) :: atomic { HAS(k, id) && !GOT(k, id) -> \
		printf("  client %d: extends at node %d\n", id, k); lives(k); \
		if :: ADD(got, k) :: skip fi; SORTED }

/* The end of a seat: the last reader deletes the key, and only the marker. */
#define FREES(k) key[k] = FREE; left[k] = 0
#ifdef UNMARKED
#define READ(k) (key[k] != FREE)
#else
#define READ(k) (key[k] == MARKER)
#endif
#ifdef FOR_ALL
#define LAST(k) true
#else
#define LAST(k) EMPTY(k)
#endif
#define STANDS_UP(k, c) SITS(k, c, 0); if :: READ(k) && LAST(k) -> FREES(k) :: else fi

/* The release of an attempt that failed, or of a lock; now or later. */
#define RELEASE(k) :: atomic { age[id] == TTL && (id != 0 || key[k] == WRITER) -> \
		printf("  client %d: release at node %d\n", id, k); \
		if :: id == 0 -> FREES(k) :: else -> STANDS_UP(k, id) fi; SORTED }

/* A new attempt has a new value: what was written with the old one only makes nodes refuse, as a
   lost command does, and is dropped when the next attempt begins or, with FORGET, as soon as
   nothing can make the client believe in it. */
#define DROP(k, c) \
	if \
	:: c == 0 && key[k] == WRITER -> FREES(k) \
	:: c != 0 -> SITS(k, c, 0); if :: key[k] == MARKER && EMPTY(k) -> FREES(k) :: else fi \
	:: else \
	fi;
#define RENEW(k) ADD(flying, k); OUT(got, k, id); DROP(k, id)
#define BURY(k) OUT(flying, k, i); OUT(got, k, i); DROP(k, i)
#ifdef FORGET
#define DEAD(c) if :: valid[c] == 0 && age[c] >= EXPIRY(c) - ALLOWED -> \
	i = c; EACH(BURY) i = 0; age[c] = TTL :: else fi;
#else
#define DEAD(c)
#endif
#define UNCOUNT(k) OUT(got, k, id);
#define AGAIN(k) ADD(flying, k);

/* An extension is confirmed before the old until. OPEN_EXTEND: that of a reader need not be. */
#ifdef OPEN_EXTEND
#define STILL (id != 0 || valid[id] > 0)
#else
#define STILL (valid[id] > 0)
#endif

proctype client(byte id) {
attempt:
	do
	EACH(SET)
#ifndef FORGET
	EACH(RELEASE)
	EACH(ZOMBIE)
#endif
	:: atomic { printf("  client %d begins an attempt\n", id);
		d_step { EACH(RENEW) age[id] = 0 } SORTED }
	:: atomic { VOTES(GOT, id) >= QUORUM && IN_TIME ->
		printf("  client %d is granted the lock\n", id);
		valid[id] = REMAINING; EXCLUDE;
		assert(ALONE);                                      /* no reader beside the writer */
		d_step { EACH(UNCOUNT) age[id] = TTL } SORTED; break }
	od;

held:
	do
	EACH(LATE)
	:: atomic { printf("  client %d stops holding\n", id);      /* unlocked, lost, or crashed */
		d_step { EACH(UNCOUNT) valid[id] = 0; age[id] = TTL; DEAD(id) } SORTED; goto attempt }
#ifdef EXTENDS
	:: atomic {
		valid[id] > 0 -> printf("  client %d begins an extension\n", id); age[id] = 0; break
	}
#endif
	od;

	do                                                          /* an extension */
	EACH(LATE)
	EACH(EXTEND)
	:: atomic { VOTES(GOT, id) >= QUORUM && IN_TIME && STILL ->
		printf("  client %d has extended\n", id);
		valid[id] = REMAINING; age[id] = TTL;
		assert(ALONE);
		assert(!passed[id]);                                /* nobody excluded it in between */
		d_step { EACH(UNCOUNT) EACH(AGAIN) }                /* heals what has lost the key */
		SORTED; goto held }
	:: atomic { printf("  client %d gives the extension up\n", id);
		d_step { EACH(UNCOUNT) age[id] = TTL } SORTED; goto held }
	od;
}

#define AGE_NODE(k) \
	if :: one[k] > 0 -> one[k]-- :: else fi; if :: two[k] > 0 -> two[k]-- :: else fi; \
	if :: left[k] > 1 -> left[k]-- :: left[k] == 1 -> FREES(k) :: else fi;
#define AGE_CLIENT(c) \
	if :: valid[c] > 0 -> valid[c]-- :: else fi; \
	if :: age[c] < TTL -> age[c]++ :: else fi; DEAD(c)
active proctype clock() {
	do :: atomic { printf("--- tick\n");
		d_step { EACH(AGE_NODE) AGE_CLIENT(0) AGE_CLIENT(1) AGE_CLIENT(2) } SORTED } od
}

#ifdef DELETED
/* Somebody deletes the keys, and not the seats, while no command is under way. A writer may then
   have the lock beside readers, but these must find out. */
#define ERASE(k) FREES(k);
active proctype operator() {
	do :: atomic { age[0] == TTL && age[1] == TTL && age[2] == TTL ->
		printf("the keys are deleted by hand\n"); d_step { EACH(ERASE) } SORTED } od
}
#endif

#define INIT(k) key[k] = FREE;
init { atomic { EACH(INIT) age[0] = TTL; age[1] = TTL; age[2] = TTL;
	run client(0); run client(1)
#ifndef ONE
	; run client(2)
#endif
	} }
