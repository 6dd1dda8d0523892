/* The queue on the nodes: W processes wait for one lock, N nodes each keep a queue of them.
   model/README.md says what each part stands for; model/run checks this file and its mutants.
   Exclusion is not what this model is about: the key alone decides that, see redlock.pml. It is
   about order and about progress: nobody is overtaken, and nobody waits for ever. */
#ifndef N
#define N 3
#endif
#ifndef W
#define W 3
#endif
#ifndef DEATHS
#define DEATHS 0                        /* how many may die */
#endif
#ifndef SPARE
#define SPARE 2                 /* claims that one may make without a quorum of reservations */
#endif
#define QUORUM (N/2 + 1)
#define NOBODY 0
#define HELD(w) (1 + w)
#define RESERVED(w) (1 + W + w)
#define SCORE(n, w) score[(n)*W + w]
#define BEFORE(a, b) before[(a)*W + b]

byte key[N];                            /* NOBODY, HELD or RESERVED */
byte score[N*W];                        /* ticket in the node's queue; 0: not in it */
byte last[N];                           /* the greatest ticket that the node knows of */
bit  before[W*W];                       /* a was known to a quorum before b's first command */
bit  known[W];                          /* a quorum knows its ticket */
bit  dead[W];
bit  done[W];                           /* has had its turn, or died */
byte deaths;
byte inside = W;                        /* who holds the lock; W: nobody */

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

/* stand: w takes a place on node n: the last one, or the one of its final ticket. With that it
   hands on what is reserved for itself. */
#define STAND(n, w, final, ticket) \
	if \
	:: key[n] == RESERVED(w) && !final \
	:: else -> \
		if \
		:: final -> SCORE(n, w) = ticket; \
			if :: ticket > last[n] -> last[n] = ticket :: else fi \
		:: else -> NEXT(n); SCORE(n, w) = last[n] \
		fi; \
		if \
		:: key[n] == NOBODY || key[n] == HELD(w) || key[n] == RESERVED(w) -> HAND_ON(n) \
		:: else \
		fi \
	fi

/* release: w's turn on node n is over, or it leaves. */
#define RELEASE(n, w) \
	if \
	:: key[n] == HELD(w) || key[n] == RESERVED(w) -> HAND_ON(n) \
	:: else -> SCORE(n, w) = 0 \
	fi

#define MINE(n, w) (key[n] == RESERVED(w))
#ifdef NO_REFUSAL
#define MAY(n, w) (key[n] == RESERVED(w) || key[n] == NOBODY)
#else
#define MAY(n, w) (key[n] == RESERVED(w))
#endif
#if N == 3
#define MAYS(w) (MAY(0, w) + MAY(1, w) + MAY(2, w))
#define PICK if :: !(todo & 1) -> n = 0 :: !(todo & 2) -> n = 1 :: !(todo & 4) -> n = 2 fi
#endif
#define ALL ((1 << N) - 1)

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
	bit final;

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
		todo = 0;
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
	:: atomic { deaths < DEATHS -> deaths++; dead[w] = 1; done[w] = 1; goto end }
	:: atomic { MAYS(w) >= QUORUM || MAYS(w) > 0 && spare > 0 ->
		if :: MAYS(w) < QUORUM -> spare-- :: else fi; break }
	:: atomic { MAYS(w) > 0 && MAYS(w) < QUORUM && spare > 0 -> spare--; goto stand } /* again */
	od;
	/* claims */
	do
	:: atomic { todo != ALL -> PICK; todo = todo | (1 << n);
		if
		:: key[n] == NOBODY || key[n] == RESERVED(w) || key[n] == HELD(w) ->
			key[n] = HELD(w); SCORE(n, w) = 0; votes++
		:: else
		fi; n = 0 }
	:: atomic { todo == ALL -> todo = 0; break }
	od;
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
	if
	:: atomic { deaths < DEATHS -> deaths++; dead[w] = 1; done[w] = 1; inside = W; goto end }
	:: atomic { inside = W; done[w] = 1 }
	fi;
	do
	:: atomic { todo != ALL -> PICK; todo = todo | (1 << n); RELEASE(n, w); n = 0 }
	:: atomic { todo == ALL -> todo = 0; break }
	od;
end:	skip
}

#ifndef DEAD_STAY
/* What the dead hold or what is reserved for them expires, and those who ask again have it handed
   on. */
#define STALE(n) (key[n] != NOBODY && dead[(key[n] - 1) % W])
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
	do :: w < W -> run waiter(w); w++ :: w == W -> break od;
#ifndef DEAD_STAY
	run time()
#endif
} }
