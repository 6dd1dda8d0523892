/* Redlock with fencing: two clients, N nodes, unbounded time and unboundedly many attempts.
   model/README.md says what each part stands for and why what is left out may be left out;
   model/run checks this file and its mutants. Time passes in ticks, one clock for all;
   clock rates that differ show as keys and guards that end DRIFT ticks early. */
#ifndef N
#define N 3
#endif
#ifndef QUORUM
#define QUORUM (N/2 + 1)
#endif
#ifndef TTL
#define TTL 3                           /* the expiry in ticks */
#endif
#ifndef DRIFT
#define DRIFT 1
#endif
#ifndef ALLOWED
#define ALLOWED DRIFT                   /* what a client subtracts for drift */
#endif
#ifndef GUARD
#define GUARD TTL                       /* the restart guard in ticks, by the node's own clock */
#endif
#ifndef SKEW
#define SKEW 1                          /* a proposal exceeds every number that is SKEW ticks old */
#endif

#if N == 1
#define EACH(f) f(0)
#define VOTES(f, i) (f(0, i))
#elif N == 3
#define EACH(f) f(0) f(1) f(2)
#define VOTES(f, i) (f(0, i) + f(1, i) + f(2, i))
#elif N == 5
#define EACH(f) f(0) f(1) f(2) f(3) f(4)
#define VOTES(f, i) (f(0, i) + f(1, i) + f(2, i) + f(3, i) + f(4, i))
#endif
#define FREE 2
#define ME (1 << id)
#define OTHER (1 - id)
#define IN(set, k, i) ((set[k] >> i) & 1)
#define GOT(k, i) IN(got, k, i)
#define HIGH(k, i) IN(high, k, i)
#define ADD(set, k) set[k] = set[k] | ME
#define OUT(set, k, c) set[k] = set[k] & ~(1 << c)
#define CUT(set, k) OUT(set, k, id)

/* A node. What is kept per client is a set of clients: bit i stands for client i. */
byte own[N];                            /* whose key: client 0, client 1, FREE */
byte left[N];                           /* ticks until it expires */
bit  has[N];                            /* counter >= the last granted token */
byte guard[N];                          /* ticks until it takes part again */
byte flying[N];                         /* a SET of the present value may still arrive */
byte got[N];                            /* the vote was counted in this round */
byte high[N];                           /* known to store the token */

/* A client. */
byte age[2];                            /* ticks since its round began; TTL: no round */
byte valid[2];                          /* ticks until its until; 0: does not hold the lock */
bit  above[2];                          /* its token exceeds the last granted one */
byte last = FREE;                       /* who was granted the lock last */
#ifdef LOSS
byte born[2];                           /* age at which its token came to be */
bit  recent[2];                         /* its proposal exceeds the last granted token */
byte old;                       /* ticks since the last granted token came to be, at most SKEW */
#define PROPOSE recent[id] = (old >= SKEW); born[id] = 0
#define GRANTED old = age[id] - born[id]; born[id] = 0; recent[id] = 0; \
	recent[OTHER] = (old >= age[OTHER] + SKEW); if :: old > SKEW -> old = SKEW :: else fi
#define OLDER if :: old < SKEW -> old++ :: else fi
#define PROPOSED_ABOVE recent[id]
#else
#define PROPOSE skip
#define GRANTED skip
#define OLDER skip
#define PROPOSED_ABOVE false
#endif
#ifdef ANY_CLOCKS
#undef PROPOSED_ABOVE
#define PROPOSED_ABOVE false
#endif
byte i, t;                              /* scratch, 0 between steps */

#ifdef NO_ELAPSED
#define IN_TIME true
#define REMAINING (TTL - ALLOWED)
#else
#define IN_TIME (age[id] < TTL - ALLOWED)
#define REMAINING (TTL - ALLOWED - age[id])
#endif

/* Nodes are interchangeable: keeping them sorted leaves one of up to N! equal states. */
#ifdef SORT
#define KEY(k) (own[k] + 4*left[k] + 32*has[k] + 64*guard[k] + 512*flying[k] + 2048*got[k] + \
	8192*high[k])
#define SWAP(a) t = a[i]; a[i] = a[i+1]; a[i+1] = t;
#define UP(k) i = k; if :: KEY(i) > KEY(i+1) -> \
	SWAP(own) SWAP(left) SWAP(has) SWAP(guard) SWAP(flying) SWAP(got) SWAP(high) :: else fi;
#if N == 3
#define SORTED d_step { UP(0) UP(1) UP(0) i = 0; t = 0 }
#elif N == 5
#define SORTED d_step { UP(0) UP(1) UP(2) UP(3) UP(0) UP(1) UP(2) UP(0) UP(1) UP(0) i = 0; t = 0 }
#endif
#else
#define SORTED skip
#endif

/* Node clocks may run fast: a lease may end DRIFT ticks early. */
inline lease(k) { if :: left[k] = TTL :: left[k] = TTL - DRIFT fi }

/* Client id counts the vote of node k. It came with a number greater than k's counter and not
   less than the proposal, which is a clock's reading: anything, unless PROPOSED_ABOVE. So
   the number is above the last granted token for certain where one of the two is. */
#define LOWER(k) CUT(high, k);
#ifdef LOSS
#define BORN born[id] = age[id]
#else
#define BORN skip
#endif
#define SURE(k) (has[k] || PROPOSED_ABOVE)
inline vote(k) {
	CUT(flying, k); ADD(got, k);
	if
#ifdef FIRST_TOKEN
	:: VOTES(GOT, id) > 1 -> if :: ADD(high, k) :: skip fi
	:: VOTES(GOT, id) == 1 -> ADD(high, k); if :: above[id] = 1 :: !SURE(k) fi
#else
	:: EACH(LOWER) ADD(high, k); above[id] = 1; BORN               /* the largest yet, and above */
	:: !above[id] && !SURE(k) -> EACH(LOWER) ADD(high, k)  /* the largest yet, but not above */
	:: VOTES(GOT, id) > 1 && (above[id] || !SURE(k)) -> ADD(high, k) /* as large as the largest */
	:: VOTES(GOT, id) > 1 && (above[id] || !SURE(k))               /* smaller */
#endif
	fi
}

/* What may happen at node k. A command that is lost, or refused, is one that never arrives. */

/* A SET of the running attempt arrives; its reply too, or not. Sent again, it finds its own key. */
#define SET(k) \
	:: atomic { age[id] < TTL && (flying[k] & ME) && own[k] == FREE && guard[k] == 0 -> \
		printf("  client %d: SET at node %d\n", id, k); own[k] = id; lease(k); \
		if :: vote(k) :: skip fi; SORTED } \
	:: atomic { age[id] < TTL && (flying[k] & ME) && own[k] == id -> \
		printf("  client %d: SET again at node %d\n", id, k); vote(k); SORTED }

/* A SET arrives so late that nobody counts it: a straggler or healing of a lock that is held, a
   zombie of one that is not. */
#ifdef HEAL_UNGUARDED
#define OPEN(k) true
#else
#define OPEN(k) (guard[k] == 0)
#endif
#define LANDS(k) printf("  client %d: late SET at node %d\n", id, k); own[k] = id; CUT(flying, k); \
	lease(k); SORTED
#ifdef PUNCTUAL
#define LATE(k)
#else
#define LATE(k)   :: atomic { (flying[k] & ME) && own[k] == FREE && OPEN(k) -> LANDS(k) }
#endif
#define ZOMBIE(k) :: atomic { age[id] == TTL && (flying[k] & ME) && own[k] == FREE && \
	guard[k] == 0 -> LANDS(k) }

/* The second round lifts the counter where the key is ours. */
#define RAISE(k) :: atomic { VOTES(GOT, id) >= QUORUM && own[k] == id && !(high[k] & ME) -> \
		printf("  client %d: raise at node %d\n", id, k); ADD(high, k); SORTED }

/* PEXPIRE where the key is ours; the reply arrives or not. */
#define EXTEND(k) :: atomic { own[k] == id && !(got[k] & ME) -> \
		printf("  client %d: PEXPIRE at node %d\n", id, k); lease(k); \
		if :: ADD(got, k) :: skip fi; SORTED }

/* Healing that is counted, or that does not wait for the quorum: mutants. In the algorithm, LATE
   heals. */
#define HEALS(k) own[k] == FREE && OPEN(k) -> \
		printf("  client %d: heal at node %d\n", id, k); own[k] = id; lease(k)
#ifdef HEAL_COUNTS
#define HEAL(k) :: atomic { HEALS(k); ADD(got, k); SORTED }
#elif defined(HEAL_EARLY)
#define HEAL(k) :: atomic { HEALS(k); SORTED }
#else
#define HEAL(k)
#endif

/* The release of an attempt that failed, or of a lock; now or later. */
#ifdef BLIND_DELETE
#define MINE(k) own[k] != FREE
#else
#define MINE(k) own[k] == id
#endif
#define RELEASE(k) :: atomic { age[id] == TTL && MINE(k) -> \
		printf("  client %d: delete at node %d\n", id, k); own[k] = FREE; left[k] = 0; SORTED }

/* A new attempt has a new value. A key of the old one is nobody's: its node refuses until it
   expires. Any node may refuse at any time, so such a key need not be kept: it is dropped when the
   next attempt begins or, with FORGET, as soon as nothing can make the client believe in it. */
#define DROP(k, c) if :: own[k] == c -> own[k] = FREE; left[k] = 0 :: else fi;
#ifdef SAME_VALUE
#define RENEW(k) ADD(flying, k);
#else
#define RENEW(k) ADD(flying, k); DROP(k, id)
#endif
#define BURY(k) OUT(flying, k, i); OUT(got, k, i); OUT(high, k, i); DROP(k, i)
#ifdef FORGET
#define DEAD(c) if :: valid[c] == 0 && age[c] >= TTL - ALLOWED -> \
	i = c; EACH(BURY) i = 0; age[c] = TTL; above[c] = 0 :: else fi;
#else
#define DEAD(c)
#endif
#define CLEAR(k) CUT(got, k); CUT(high, k);
#ifdef LOSS
#define KEEP(k)  has[k] = HIGH(k, id) && own[k] == id;   /* not where it was lost again */
#else
#define KEEP(k)  has[k] = HIGH(k, id);
#endif
#define AGAIN(k) ADD(flying, k);

#ifdef NO_RAISE
#define STORED GOT
#else
#define STORED HIGH
#endif
#ifdef LATE_EXTEND
#define STILL true
#else
#define STILL (valid[id] > 0)
#endif

#ifdef OPEN_EXTEND
#define DECIDED true
#else
#define DECIDED STILL
#endif

#ifdef DELETED
#define MEDDLED true
#else
#define MEDDLED false
#endif

proctype client(bit id) {
attempt:
	do
	EACH(SET)
#ifndef NO_RAISE
	EACH(RAISE)
#endif
#ifndef FORGET
	EACH(RELEASE)
	EACH(ZOMBIE)
#endif
	:: atomic { printf("  client %d begins an attempt\n", id);
		d_step { EACH(RENEW) EACH(CLEAR) age[id] = 0; above[id] = 0; PROPOSE } SORTED }
	:: atomic { VOTES(STORED, id) >= QUORUM && IN_TIME ->       /* granted */
		printf("  client %d is granted the lock\n", id);
		assert(valid[OTHER] == 0 || MEDDLED);               /* one holder */
		assert(above[id]);                                  /* tokens increase */
		valid[id] = REMAINING; last = id;
		d_step { EACH(KEEP) EACH(CLEAR) GRANTED; above[id] = 0; age[id] = TTL }
		if :: above[OTHER] = 0 :: above[OTHER] fi;          /* any order between the two */
		SORTED; break }
	od;

held:
	do
	EACH(LATE)
	:: atomic { printf("  client %d stops holding\n", id);      /* unlocked, lost, or crashed */
		d_step { EACH(CLEAR) valid[id] = 0; age[id] = TTL; DEAD(id) } SORTED; goto attempt }
#ifdef EXTENDS
	:: atomic { STILL -> printf("  client %d begins an extension\n", id); age[id] = 0; break }
#endif
	od;

	do                                                          /* an extension */
	EACH(LATE)
	EACH(EXTEND)
	EACH(HEAL)
	:: atomic { VOTES(GOT, id) >= QUORUM && IN_TIME && DECIDED ->
		printf("  client %d has extended\n", id);
		assert(valid[OTHER] == 0 || MEDDLED);
		assert(last == id);                                 /* nobody was granted it in between */
		valid[id] = REMAINING; age[id] = TTL;
		d_step { EACH(CLEAR) EACH(AGAIN) }                  /* heals what has lost the key */
		SORTED; goto held }
	:: atomic { printf("  client %d gives the extension up\n", id);
		d_step { EACH(CLEAR) age[id] = TTL } SORTED; goto held }
	od;
}

#define AGE_NODE(k) \
	if :: left[k] > 1 -> left[k]-- :: left[k] == 1 -> left[k] = 0; own[k] = FREE :: else fi; \
	if :: guard[k] > 0 -> guard[k]-- :: else fi;
#define AGE_CLIENT(c) \
	if :: valid[c] > 0 -> valid[c]-- :: else fi; \
	if :: age[c] < TTL -> age[c]++ :: else fi; DEAD(c)
active proctype clock() {
	do :: atomic { printf("--- tick\n");
		d_step { EACH(AGE_NODE) AGE_CLIENT(0) AGE_CLIENT(1) OLDER } SORTED } od
}

#ifdef DELETED
/* Somebody deletes the lock's keys, on all nodes and while no command is under way. Then there may
   be two holders, but the one whose keys they were must find out. */
#define ERASE(k) own[k] = FREE; left[k] = 0;
active proctype operator() {
	do :: atomic { age[0] == TTL && age[1] == TTL ->
		printf("the keys are deleted by hand\n"); d_step { EACH(ERASE) } SORTED } od
}
#endif

#ifdef LOSS
/* A node loses all it knew, at any time, and is back at once, behind its guard. With ONE, no
   node does so while another is behind its guard. */
#ifdef ONE
#if N == 3
#define CALM (guard[0] + guard[1] + guard[2] == 0)
#else
#define CALM (guard[0] + guard[1] + guard[2] + guard[3] + guard[4] == 0)
#endif
#else
#define CALM true
#endif
#define LOSE(k) :: atomic { CALM -> printf("node %d loses its data\n", k); \
	own[k] = FREE; left[k] = 0; has[k] = 0; \
	if :: guard[k] = GUARD :: GUARD > DRIFT -> guard[k] = GUARD - DRIFT fi; SORTED }
active proctype crash() { do EACH(LOSE) od }
#endif

/* Locks of other names share the counter. They raise it, by any amount and at any time. LOWERED:
   they lower it, as one that deleted its counter would. */
#ifdef SHARED
#define LIFT(k) :: atomic { !has[k] -> printf("another name raises the counter of node %d\n", k); \
	has[k] = 1; SORTED }
active proctype others() { do EACH(LIFT) od }
#endif
#ifdef LOWERED
#define DROPS(k) :: atomic { has[k] -> printf("another name lowers the counter of node %d\n", k); \
	has[k] = 0; SORTED }
active proctype vandal() { do EACH(DROPS) od }
#endif

#define INIT(k) own[k] = FREE; has[k] = 1;
init { atomic { EACH(INIT) age[0] = TTL; age[1] = TTL; run client(0); run client(1) } }
