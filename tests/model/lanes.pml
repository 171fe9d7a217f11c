/* What order.pml and order_fq.pml share: the two lanes of a path, the reader, and what the device saw.
 *
 * A lane is an SPSC ring. Each side's cursor and its copy of the other side's cursor are local variables of a process; the
 * words that the sides publish to each other are the four globals below, and each load or store of one is a step of its own.
 * ring.pml shows that the ring itself is right, so filling a slot that nobody else can see is part of a private step here. */

#ifndef FRAMES
#define FRAMES 5 /* the reader may stop at any number up to this; at most 7 */
#endif
#ifndef TABLE
#define TABLE 2 /* entries of the reader's table: 2 keeps the flows apart, 1 makes them collide */
#endif
/* -DONLY_SMALL: every frame is small, so only a full express lane sends one to bulk. */
#ifndef XQUOTA
#define XQUOTA 2 /* express frames a turn */
#endif
#ifndef BCAP
#define BCAP 2 /* slots of the bulk lane */
#endif
#define XCAP 2 /* slots of the express lane */
#define BATCH 2 /* frames of a bulk transmit call */
#define FLOWS 2
#ifdef FRAGMENTS
#define FLOW byte
#define FRAGMENT 2 /* of both flows, for all that can be told: they have one address pair */
#else
#define FLOW bit
#endif

/* Places that the clean model must be able to reach. -DREACH=NAME turns that place into a violation. */
#define DENIED 1 /* a candidate goes to bulk because its flow still waits there */
#define PROMOTED_PAST_BULK 2 /* the device accepts an express frame while an older bulk frame waits */
#define BULK_WHILE_EXPRESS_WAITS 3 /* bulk is accepted while an express frame waits */
#define STAMP_LIMITS 4 /* the stamp of a waiting express frame holds back bulk that could go */
#define EXPRESS_FULL 5 /* a candidate goes to bulk because the express lane is full */
#define BULK_FULL 6 /* the reader drops a frame because the bulk lane is full */
#define LAST_TRY_DROPS 7 /* a frame is dropped when the budget is spent */
#define ALL_SENT 8 /* the end, all frames accepted, of both flows and through both lanes */
#define RELEASED_THEN_PROMOTED 9 /* a flow that waited in bulk is promoted again */
#define APPENDED 10 /* fq: a candidate joins its own flow's queue */
#define WAITS_IN_REFUSED_BATCH 11 /* fq: a candidate's flow waits only in the refused batch */
#define PUT_BACK 12 /* fq: a batch of one queue's frames goes back to it */
#define HELD_BY_FENCE 13 /* fq, fragments: a fragment waits for an older frame of its pair in another queue */
#define JOINED_FRAGMENT 14 /* fq, fragments: a frame goes to the fragments' queue instead of its own */
#ifndef REACH
#define REACH 0
#endif

/* Published words. */
byte b_tail_pub; /* written by the reader: end of the bulk entries that the writer may read */
byte x_tail_pub; /* written by the reader: the same for express */
byte b_head_pub; /* written by the writer: bulk slots free again. In bulk=fifo this is "done" */
byte x_head_pub; /* written by the writer: the same for express */

/* Slots. A frame is its arrival number, from 1. */
byte b_frame[BCAP];
byte x_frame[XCAP];
byte x_stamp[XCAP];

/* What an observer knows; neither reader nor writer looks at it, except at the writer's end. */
FLOW flow_of[FRAMES + 1];
byte last_left[FLOWS]; /* the youngest frame of a flow that left the writer */
byte gone; /* bit f: frame f was accepted or dropped */
byte arrived;
bool reader_ended;
#if REACH == ALL_SENT
bool used_bulk, used_express, any_dropped;
#endif
byte express_owed; /* express frames that were visible when the last bulk call ended, and not offered since (at most XQUOTA) */

/* The properties, named, so that pan's message says which one broke. -DONLY=NAME asks for that one alone, so that a planted
 * fault is shown to break the property it is said to break. */
bool in_order = true; /* no frame overtakes an older frame of its flow */
bool gone_once = true; /* no frame is accepted or dropped twice */
bool none_lost = true; /* at the end every frame is accounted for */
bool express_offered = true; /* no bulk call before the express frames that were visible were offered */
bool stamp_kept = true; /* no bulk frame younger than the stamp of a waiting express frame is sent */
bool not_stuck = true; /* fq: where frames wait, one of them may leave */
bool stamp_published = true; /* fq: the bulk entries below the stamp of a visible express frame are visible */
#define IN_ORDER 1
#define GONE_ONCE 2
#define NONE_LOST 3
#define EXPRESS_OFFERED 4
#define STAMP_KEPT 5
#define STAMP_PUBLISHED 6
#define NOT_STUCK 7
#ifndef ONLY
#define ONLY 0
#endif
#define CHECK(number, property) assert((ONLY && ONLY != number) || property)

#define MIN(a, b) ((a) < (b) -> (a) : (b))

inline leave(f)
{
	gone_once = !(gone & (1 << f));
	CHECK(GONE_ONCE, gone_once);
	gone = gone | (1 << f);
	flow_of[f] = 0
}

inline leave_writer(f)
{
#ifdef FRAGMENTS
	in_order = (flow_of[f] == 1 || f > last_left[0]) && (flow_of[f] == 0 || f > last_left[1]);
	last_left[0] = (flow_of[f] != 1 -> f : last_left[0]);
	last_left[1] = (flow_of[f] != 0 -> f : last_left[1]);
#else
	in_order = f > last_left[flow_of[f]];
	last_left[flow_of[f]] = f;
#endif
	CHECK(IN_ORDER, in_order);
	leave(f)
}

/* The device takes f. */
inline accept(f)
{
	leave_writer(f)
}

/* The writer drops f. Order is asked of drops too: wherever the writer may drop, the device may accept instead, so this asks
 * nothing new, and fewer states differ. */
inline drop(f)
{
#if REACH == ALL_SENT
	any_dropped = true;
#endif
	leave_writer(f)
}

/* f is dropped at the tail of the lane, or at the head of a flow's queue: older frames of its flow may still wait. */
inline drop_early(f)
{
#if REACH == ALL_SENT
	any_dropped = true;
#endif
	leave(f)
}

inline check_end()
{
	none_lost = gone == (1 << (arrived + 1)) - 2;
	CHECK(NONE_LOST, none_lost);
#if REACH == ALL_SENT
	assert(any_dropped || arrived < FRAMES || !used_bulk || !used_express || !last_left[0] || !last_left[1])
#endif
}

active proctype reader()
{
	byte b_tail, x_tail; /* private cursors */
	byte b_head_seen, x_head_seen; /* copies of the writer's words */
	byte last[TABLE]; /* bulk sequence just after the flow's last bulk frame */
	FLOW flow;
	bit small;

next:
	if
	:: atomic {
		arrived < FRAMES ->
		arrived++;
		if
		:: flow = 0
		:: arrived > 1 -> flow = 1 /* the first frame names flow 0: the flows are alike */
#ifdef FRAGMENTS
		:: flow = FRAGMENT
#endif
		fi;
		flow_of[arrived] = flow;
#ifdef ONLY_SMALL
		small = 1
#else
		if
		:: small = 0
#ifdef FRAGMENTS
		:: flow != FRAGMENT -> small = 1
#else
		:: small = 1
#endif
		fi
#endif
	}
	:: goto stop
	fi;

	if
	:: !small -> goto bulk
	:: else
	fi;
#if !defined(FQ) && !defined(MUT_NO_TABLE)
	/* bulk=fifo: promoted iff nothing of the flow waits. The copy of done is reloaded only where it says no. */
	if
	:: last[flow % TABLE] > b_head_seen -> b_head_seen = b_head_pub
	:: else
	fi;
	if
	:: last[flow % TABLE] > b_head_seen ->
		assert(REACH != DENIED);
		goto bulk
	:: else
	fi;
	assert(REACH != RELEASED_THEN_PROMOTED || last[flow % TABLE] == 0);
#endif
	if
	:: x_tail - x_head_seen == XCAP -> x_head_seen = x_head_pub
	:: else
	fi;
	if
	:: x_tail - x_head_seen == XCAP ->
		assert(REACH != EXPRESS_FULL);
		goto bulk
	:: else
	fi;

	/* express */
#if !defined(MUT_BATCH_EXPRESS_FIRST) && !defined(MUT_BATCH_BULK_FIRST) && !defined(MUT_NO_BULK_BEFORE_EXPRESS)
	b_tail_pub = b_tail; /* rule 1: what arrived before the express frame is visible before it */
#endif
	d_step {
		x_frame[x_tail % XCAP] = arrived;
		x_stamp[x_tail % XCAP] = b_tail;
		x_tail++;
#if REACH == ALL_SENT
		used_express = true;
#endif
		flow = 0;
		small = 0
	};
#if !defined(MUT_BATCH_EXPRESS_FIRST) && !defined(MUT_BATCH_BULK_FIRST)
	x_tail_pub = x_tail;
#endif
	goto pushed;

bulk:
	if
	:: b_tail - b_head_seen == BCAP -> b_head_seen = b_head_pub
	:: else
	fi;
	if
	:: d_step {
		b_tail - b_head_seen == BCAP ->
		assert(REACH != BULK_FULL);
		drop_early(arrived);
		flow = 0;
		small = 0
	}
	:: d_step {
		else ->
		b_frame[b_tail % BCAP] = arrived;
		b_tail++;
		last[flow % TABLE] = b_tail;
#if REACH == ALL_SENT
		used_bulk = true;
#endif
		flow = 0;
		small = 0
	}
	fi;

pushed:
	if
	:: goto next /* the batch goes on */
	:: skip /* the batch ends */
	fi;
#ifdef MUT_BATCH_EXPRESS_FIRST
	x_tail_pub = x_tail;
#endif
	b_tail_pub = b_tail;
#ifdef MUT_BATCH_BULK_FIRST
	x_tail_pub = x_tail;
#endif
	goto next;

stop:
#ifdef MUT_BATCH_EXPRESS_FIRST
	x_tail_pub = x_tail;
#endif
	b_tail_pub = b_tail;
#ifdef MUT_BATCH_BULK_FIRST
	x_tail_pub = x_tail;
#endif
	reader_ended = true
}
