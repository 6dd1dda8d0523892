/* The queue on the nodes: W processes wait for one lock, N nodes each keep a queue of them.
   model/README.md says what each part stands for; model/run checks this file and its mutants.
   Exclusion is not what this model is about: the key alone decides that, see redlock.pml. It is
   about order and about progress: nobody is overtaken, and nobody waits for ever. With BIDS a
   release may grant the key. Then exclusion also depends on which messages a process counts. */
#ifndef N
#define N 3
#endif
#ifndef W
#define W 3
#endif
#ifndef DEATHS
#define DEATHS 0                        /* how many may die */
#endif
#ifndef LEAVES
#define LEAVES 0                        /* how many may give up */
#endif
#ifndef SPARE
#define SPARE 2                 /* how often one may claim without a quorum, or stand again */
#endif
#define QUORUM (N/2 + 1)
#define NOBODY 0
#define HELD(w) (1 + w)
#define RESERVED(w) (1 + W + w)
#define LOST (1 + 2*W)                  /* a value that nobody takes back: in a mutant only */
#define SCORE(n, w) score[(n)*W + w]
#define BEFORE(a, b) before[(a)*W + b]

byte key[N];                            /* NOBODY, HELD or RESERVED */
byte score[N*W];                        /* ticket in the node's queue; 0: not in it */
byte last[N];                           /* the greatest ticket that the node knows of */
bit  before[W*W];                       /* a was known to a quorum before b's first command */
bit  known[W];                          /* a quorum knows its ticket */
bit  dead[W];
bit  done[W];                           /* has had its turn, or given up, or died */
byte deaths, leaves;
byte inside = W;                        /* who holds the lock; W: nobody */
#ifdef BIDS
byte bid[N];                            /* NOBODY, BID or OLD */
bit  bids[W];                           /* it listens for the number of its bid */
byte told[N];                           /* to whom a number is under way: a set */
#define BID(w) (1 + w)
#define OLD(w) (1 + W + w)              /* a bid that was withdrawn: in a mutant only */
#endif

/* Scratch, 0 between steps. */
byte i, best, first;

/* head: best = the first in the queue of node n, W if there is none. */
#define HEAD(n) \
	best = W; i = 0; \
	do \
	:: i == W -> break \
	:: i < W && SCORE(n, i) == 0 -> i++ \
	:: i < W && SCORE(n, i) > 0 -> \
		if \
		:: best == W -> best = i \
		:: best < W && SCORE(n, i) < SCORE(n, best) -> best = i \
		:: else \
		fi; i++ \
	od; i = 0

#ifdef DEAD_STAY
#define HEARS(w) true                   /* mutant: the dead are reserved for like the living */
#else
#define HEARS(w) (!dead[w])
#endif

/* hand on: reserve the key of node n for the first that hears of it, or else the first; free if
   there is none. */
#ifdef NO_REFUSAL
#define HAND_ON(n) key[n] = NOBODY      /* mutant: whoever asks first */
#else
#define HAND_ON(n) \
	first = W; \
	do \
	:: HEAD(n); \
		if \
		:: best == W -> break \
		:: best < W && HEARS(best) -> SCORE(n, best) = 0; first = best; break \
		:: best < W && !HEARS(best) -> SCORE(n, best) = 0; \
			if :: first == W -> first = best :: else fi \
		fi \
	od; \
	if :: first == W -> key[n] = NOBODY :: else -> key[n] = RESERVED(first) fi; \
	first = 0; best = 0
#endif

#ifdef FORGET
#define NEXT(n) \
	last[n] = 0; i = 0; \
	do \
	:: i == W -> break \
	:: i < W -> if :: SCORE(n, i) > last[n] -> last[n] = SCORE(n, i) :: else fi; i++ \
	od; \
	last[n]++; i = 0                /* mutant: only those in the queue count */
#else
#define NEXT(n) last[n]++
#endif

#ifdef BIDS
/* take up: node n grants the key to the one it has just reserved it for, if that one has bid, and
   sends the number of the bid. One that nobody listens for counts as nothing: it is left out. */
#ifdef SAME_NUMBER
#define LISTENS(w) true                 /* mutant: all bids of a process have one number */
#else
#define LISTENS(w) bids[w]
#endif
#ifdef ANY_BID
#define FITS(n) (key[n] != NOBODY)      /* mutant: whoever has bid */
#else
#define FITS(n) (key[n] == RESERVED(BIDDER(n)))
#endif
#define BIDDER(n) (bid[n] - 1)
#define TAKE_UP(n) \
	if \
	:: bid[n] != NOBODY && bid[n] <= W && FITS(n) && HEARS(BIDDER(n)) -> \
		key[n] = HELD(BIDDER(n)); \
		if :: LISTENS(BIDDER(n)) -> told[n] = told[n] | 1 << BIDDER(n) :: else fi \
	:: bid[n] > W && key[n] == RESERVED(bid[n] - 1 - W) -> key[n] = LOST \
	:: else \
	fi;
#ifdef KEEP_BID
#define AFTER(w) OLD(w)                 /* mutant: the node remembers it */
#else
#define AFTER(w) NOBODY
#endif
/* One that stands has withdrawn its bid, except in a mutant. */
#define FORGET_BID(n, w) if :: bid[n] == BID(w) && !BIDDEN(w) -> bid[n] = AFTER(w) :: else fi;
#define BIDDEN(w) bids[w]
#else
#define TAKE_UP(n)
#define FORGET_BID(n, w)
#define BIDDEN(w) false
#endif

/* stand: w takes a place on node n: the last one, or the one of its final ticket. With that it
   hands on what is reserved for itself, and what it was granted: the take-back is part of it. */
#define STAND(n, w, final, ticket) \
	FORGET_BID(n, w) \
	if \
	:: key[n] == RESERVED(w) && !final \
	:: else -> \
		if \
		:: final -> SCORE(n, w) = ticket; \
			if :: ticket > last[n] -> last[n] = ticket :: else fi \
		:: else -> NEXT(n); SCORE(n, w) = last[n] \
		fi; \
		if \
		:: key[n] == NOBODY || key[n] == HELD(w) && !BIDDEN(w) || key[n] == RESERVED(w) -> \
			HAND_ON(n) \
		:: else \
		fi \
	fi

/* release: w's turn on node n is over, or it leaves. */
#define RELEASE(n, w) \
	FORGET_BID(n, w) \
	if \
	:: key[n] == HELD(w) || key[n] == RESERVED(w) -> HAND_ON(n); TAKE_UP(n) \
	:: else -> SCORE(n, w) = 0 \
	fi

/* give up: w takes back what a bid was granted, which keeps its place, and leaves. */
#ifdef LEAVE_GRANT
#define GIVE_UP(n, w, ticket) \
	if :: key[n] == HELD(w) :: else -> RELEASE(n, w) fi     /* mutant: it only leaves */
#else
#define GIVE_UP(n, w, ticket) \
	if :: key[n] == HELD(w) -> SCORE(n, w) = ticket; HAND_ON(n) :: else fi; \
	RELEASE(n, w)
#endif

#define MINE(n, w) (key[n] == RESERVED(w))
#ifdef NO_REFUSAL
#define MAY(n, w) (key[n] == RESERVED(w) || key[n] == NOBODY)
#else
#define MAY(n, w) (key[n] == RESERVED(w) || HAS(n))
#endif
#define HAS(n) ((has >> n) & 1)
#if N == 3
#define MAYS(w) (MAY(0, w) + MAY(1, w) + MAY(2, w))
#define PICK if :: !(todo & 1) -> n = 0 :: !(todo & 2) -> n = 1 :: !(todo & 4) -> n = 2 fi
#endif
#define ALL ((1 << N) - 1)

#ifdef BIDS
/* The bid of w arrives at nodes. It is granted when its number has come from a quorum. Once w
   forgets the number, what is under way to it counts as nothing. */
#ifdef TOLD_IS_GRANT
#define GRANTED(w) (MAYS(w) >= QUORUM)  /* mutant: a reservation counts as well */
#else
#define GRANTED(w) (HAS(0) + HAS(1) + HAS(2) >= QUORUM)
#endif
#define HEAR(n, w) \
	:: atomic { bids[w] && IS_TOLD(n, w) -> QUIET(n, w) has = has | 1 << n }
#define IS_TOLD(n, w) ((told[n] >> w) & 1)
#define QUIET(n, w) told[n] = told[n] & ~(1 << w);
#ifdef SAME_NUMBER
#define END_BID(w) bids[w] = 0; has = 0;
#else
#define END_BID(w) bids[w] = 0; has = 0; QUIET(0, w) QUIET(1, w) QUIET(2, w)
#endif
#define ARRIVES(w) \
	:: atomic { todo != ALL -> PICK; todo = todo | (1 << n); bid[n] = BID(w); n = 0 }
#else
#define has 0
#define END_BID(w)
#endif
#ifdef NO_WITHDRAW
#define WITHDRAW(w) has = 0;            /* mutant: it only forgets what it has heard */
#else
#define WITHDRAW(w) END_BID(w)
#endif

/* agree on: the least ticket that fewer than a quorum of nodes exceed. Any one node may be late,
   which counts as if it did. */
#define LATE 255
#define BETWEEN(a, b, c) (a <= b && b <= c || c <= b && b <= a)
#ifdef LEAST
#define TAKE ticket = (given[0] < given[1] -> given[0] : given[1]); \
	ticket = (given[2] < ticket -> given[2] : ticket)       /* mutant: the least of all */
#else
#define TAKE \
	if \
	:: BETWEEN(given[0], given[1], given[2]) -> ticket = given[1] \
	:: else -> \
		if \
		:: BETWEEN(given[1], given[0], given[2]) -> ticket = given[0] \
		:: else -> ticket = given[2] \
		fi \
	fi
#endif

proctype waiter(byte w) {
	byte n, todo, ticket, agree, votes, spare = SPARE, j;
	byte given[N];                  /* tickets */
	bit final, quits;
#ifdef BIDS
	byte has;                       /* nodes that have sent the number of the bid: a set */
#endif

#ifdef HOLDER
	if :: w == 0 -> todo = ALL; goto hold :: else fi;
#endif
	atomic {                        /* the first command leaves */
		j = 0;
		do
		:: j == W -> break
		:: j < W -> BEFORE(j, w) = known[j] && !done[j]; j++
		od; j = 0
	}
stand:
	todo = 0; agree = 0;
	do
	:: atomic { todo != ALL ->
		PICK; todo = todo | (1 << n);
		STAND(n, w, final, ticket);
		if
		:: !final -> given[n] = (SCORE(n, w) > 0 -> SCORE(n, w) : last[n])
		:: else
		fi; n = 0 }
	:: todo == ALL -> break
	od;
	atomic {
		if
		:: !final ->
			if :: given[0] = LATE :: given[1] = LATE :: given[2] = LATE :: skip fi;
			TAKE;
			agree = (given[0] == ticket) + (given[1] == ticket) + (given[2] == ticket);
			given[0] = 0; given[1] = 0; given[2] = 0
		:: else
		fi;
		if
#ifdef NODE_LOCAL
		:: true -> known[w] = 1                 /* mutant: each node keeps an order of its own */
#else
		:: known[w]
		:: !known[w] && (final || agree >= QUORUM) -> final = 1; known[w] = 1
		:: !known[w] && !final && agree < QUORUM -> final = 1; agree = 0; goto stand
#endif
		fi; agree = 0
	}
	/* waits for its turn */
	do
	:: atomic { deaths < DEATHS -> deaths++; dead[w] = 1; done[w] = 1; todo = 0; END_BID(w)
		goto end }
	:: atomic { leaves < LEAVES -> leaves++; quits = 1; done[w] = 1; todo = 0; END_BID(w)
		goto leave }
	:: atomic { MAYS(w) >= QUORUM || MAYS(w) > 0 && spare > 0 ->
		if :: MAYS(w) < QUORUM -> spare-- :: else fi; todo = 0; END_BID(w) break }
	:: atomic { (MAYS(w) > 0 || BIDDEN(w)) && MAYS(w) < QUORUM && spare > 0 ->
		spare--; WITHDRAW(w) goto stand }                              /* again */
#ifdef BIDS
	:: atomic { !bids[w] -> bids[w] = 1; todo = 0 }                         /* bids */
	ARRIVES(w)
	HEAR(0, w)
	HEAR(1, w)
	HEAR(2, w)
	:: atomic { GRANTED(w) -> END_BID(w) votes = QUORUM; goto decided }
#endif
	od;
	/* claims */
	do
	:: atomic { todo != ALL -> PICK; todo = todo | (1 << n);
		if
		:: key[n] == NOBODY || key[n] == RESERVED(w) || key[n] == HELD(w) ->
			key[n] = HELD(w); SCORE(n, w) = 0; votes++
		:: else
		fi; n = 0 }
	:: atomic { todo == ALL -> break }
	od;
decided:
	if
	:: atomic { votes < QUORUM -> votes = 0; goto stand }
	:: atomic { votes >= QUORUM -> votes = 0;
		assert(inside == W); inside = w;
		j = 0;
		do
		:: j == W -> break
		:: j < W -> assert(!(BEFORE(j, w) && !done[j])); j++
		od; j = 0 }
	fi;
hold:
	do
	:: atomic { deaths < DEATHS -> deaths++; dead[w] = 1; done[w] = 1; inside = W; todo = 0;
		goto end }
	:: atomic { inside = W; done[w] = 1; todo = 0; break }
#ifdef BIDS
	ARRIVES(w)
#endif
	od;
leave:
	do
	:: atomic { todo != ALL -> PICK; todo = todo | (1 << n);
		if :: quits -> GIVE_UP(n, w, ticket) :: else -> RELEASE(n, w) fi; n = 0 }
	:: atomic { todo == ALL -> todo = 0; break }
	od;
end:	skip
}

#ifndef DEAD_STAY
/* What the dead hold or what is reserved for them expires, and those who ask again have it handed
   on. So does what is reserved for the holder: it does not claim any more. */
#ifdef BIDS
#define STALE(n) (key[n] != NOBODY && dead[(key[n] - 1) % W] || key[n] == RESERVED(inside))
#else
#define STALE(n) (key[n] != NOBODY && dead[(key[n] - 1) % W])
#endif
proctype time() {
end:	do
	:: atomic { STALE(0) -> HAND_ON(0) }
	:: atomic { STALE(1) -> HAND_ON(1) }
	:: atomic { STALE(2) -> HAND_ON(2) }
	od
}
#endif

init { atomic {
	byte w = 0;
#ifdef HOLDER
	key[0] = HELD(0); key[1] = HELD(0); key[2] = HELD(0); inside = 0;
#endif
	do :: w < W -> run waiter(w); w++ :: w == W -> break od;
#ifndef DEAD_STAY
	run time()
#endif
} }
