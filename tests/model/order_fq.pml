/* Per-flow order through the two lanes with bulk=fq: the reader sends every candidate to express with its stamp, the writer
 * moves bulk into a queue per flow and decides about a candidate from its own flow's queue. See README.md. */

#define FQ
#ifndef FRAMES
#define FRAMES 4
#endif
#include "lanes.pml"

/* The writer's own; a queue a flow, and fragments go to the first, where a flow's frames are too. */
#define QUEUES FLOWS
byte queue[QUEUES * FRAMES], length[QUEUES];
#define HEAD(n) queue[(n) * FRAMES]

#ifdef FRAGMENTS
/* The fence of the pair (workers/flow_queue.h): while fragments wait, or frames that came after them, all of the pair joins
 * their queue; they leave when nothing older waits. */
byte fenced, unfenced, fence_queue;
bit is_fenced[FRAMES + 1];
#define OWN_QUEUE(f) (flow_of[f] == FRAGMENT -> 0 : flow_of[f])
#ifdef MUT_NO_FENCE
#define QUEUE_OF(f) OWN_QUEUE(f)
#else
#define QUEUE_OF(f) (fenced > 0 -> fence_queue : OWN_QUEUE(f))
#endif
#ifdef MUT_FENCE_FORGETS_OLDER
#define HELD(n) false
#else
#define HELD(n) (is_fenced[HEAD(n)] && unfenced > 0)
#endif
#else
#define QUEUE_OF(f) flow_of[f]
#define HELD(n) false
#endif
#define MAY_LEAVE(n) (length[n] > 0 && !HELD(n))

bit queue_of[FRAMES + 1]; /* of a frame that is queued or in a batch */

inline enqueue(f)
{
	queue_of[f] = QUEUE_OF(f);
#ifdef FRAGMENTS
	assert(REACH != JOINED_FRAGMENT || queue_of[f] == OWN_QUEUE(f));
	if
#ifdef MUT_FENCE_FALLS_EARLY
	:: flow_of[f] == FRAGMENT ->
#else
	:: fenced > 0 || flow_of[f] == FRAGMENT ->
#endif
		is_fenced[f] = 1;
		fenced++;
		fence_queue = queue_of[f]
	:: else -> unfenced++
	fi;
#endif
	queue[queue_of[f] * FRAMES + length[queue_of[f]]] = f;
	length[queue_of[f]]++
}

/* Takes the head of queue n into f. */
inline take_head(n, f)
{
	f = HEAD(n);
	length[n]--;
	at = 0;
	do
	:: at < length[n] -> queue[n * FRAMES + at] = queue[n * FRAMES + at + 1]; at++
	:: else -> break
	od;
	queue[n * FRAMES + at] = 0;
	at = 0
}

/* A frame that was taken goes back to the head of its queue. */
inline put_back(f)
{
	at = length[queue_of[f]];
	do
	:: at > 0 -> queue[queue_of[f] * FRAMES + at] = queue[queue_of[f] * FRAMES + at - 1]; at--
	:: else -> break
	od;
	HEAD(queue_of[f]) = f;
	length[queue_of[f]]++
}

/* A frame that was queued is accepted or dropped. */
inline done(f)
{
#ifdef FRAGMENTS
	if
	:: is_fenced[f] -> fenced--; is_fenced[f] = 0
	:: else -> unfenced--
	fi;
	fence_queue = (fenced > 0 -> fence_queue : 0);
#endif
	queue_of[f] = 0
}

/* Moves bulk entries below upto into their queues. */
inline take_in(upto)
{
	do
	:: b_head < upto ->
		enqueue(b_frame[b_head % BCAP]);
		b_frame[b_head % BCAP] = 0;
		b_head++
	:: else -> break
	od
}

inline leave_express()
{
	x_frame[x_head % XCAP] = 0;
	x_stamp[x_head % XCAP] = 0;
	x_head++;
	quota--;
	express_owed = (express_owed -> express_owed - 1 : 0)
}

/* A flow waits while a frame is in its queue, or taken from there in the refused batch. */
#ifdef MUT_DONE_IS_DEQUEUED
#define WAITS(n) (length[n] > 0)
#else
#define WAITS(n) \
	(length[n] > 0 || (batch_frames > 0 && queue_of[batch[0]] == (n)) || (batch_frames > 1 && queue_of[batch[1]] == (n)))
#endif

active proctype writer()
{
	byte b_head, x_head; /* private cursors */
	byte x_tail_seen; /* copy of the reader's word, as of the last look */
	byte limit, upto, quota;
	byte batch[BATCH], batch_frames; /* the frames of a bulk call, kept while the device refuses them */
	byte accepted, f, at;
	bool dropped, refused, last_try, given_up;

turn:
#ifndef MUT_TAIL_AFTER_EXPRESS
	limit = b_tail_pub; /* rule 2: before the look at express */
#endif
#ifdef MUT_STALE_EXPRESS_TAIL
	if
	:: x_head == x_tail_seen -> x_tail_seen = x_tail_pub
	:: else
	fi;
#else
	x_tail_seen = x_tail_pub; /* the look: always a fresh load */
#endif

	atomic { quota = XQUOTA; refused = false };
	do
	:: x_head != x_tail_seen && quota > 0 && !refused ->
		/* Bulk that arrived before the candidate joins the queues first, bulk that arrived after it does not. */
#ifdef MUT_NO_STAMP
		upto = limit;
#else
		d_step {
			stamp_published = x_stamp[x_head % XCAP] <= b_tail_pub;
			CHECK(STAMP_PUBLISHED, stamp_published);
			upto = MIN(x_stamp[x_head % XCAP], b_tail_pub)
		};
#endif
		d_step {
			f = x_frame[x_head % XCAP];
			take_in(upto);
			upto = 0
		};
		if
		:: d_step {
#ifdef MUT_FENCE_UNASKED
			WAITS(OWN_QUEUE(f)) ->
#else
			WAITS(QUEUE_OF(f)) -> /* not empty: append */
#endif
			assert(REACH != APPENDED);
			assert(REACH != WAITS_IN_REFUSED_BATCH || length[QUEUE_OF(f)] > 0);
			enqueue(f);
			leave_express();
			f = 0
		}
		:: else ->
			if
			:: d_step { /* SENT */
				assert(REACH != PROMOTED_PAST_BULK ||
				       (length[1 - flow_of[f]] == 0 && b_head == b_tail_pub));
				accept(f);
				leave_express();
				f = 0
			}
			:: d_step { /* BAD_FRAME, or express's own budget is spent */
				drop(f);
				leave_express();
				f = 0
			}
			:: d_step { refused = true; express_owed = 0; f = 0 } /* BUSY */
			fi
		fi;
		x_head_pub = x_head
	:: else -> break
	od;

#ifdef MUT_TAIL_AFTER_EXPRESS
	limit = b_tail_pub;
#endif
#ifndef MUT_NO_STAMP
	if
	:: x_head != x_tail_seen -> /* rule 4 */
		assert(REACH != STAMP_LIMITS || limit <= x_stamp[x_head % XCAP]);
		limit = MIN(limit, x_stamp[x_head % XCAP])
	:: else
	fi;
#endif
	atomic { quota = 0; refused = false };
	d_step { take_in(limit); limit = 0 };
	b_head_pub = b_head;

	/* Any queue may lose its head at any time: CoDel, or overflow. An older frame of the flow may sit in the refused batch. */
	if
	:: skip
	:: d_step { length[0] > 0 -> take_head(0, f); done(f); drop_early(f); f = 0 }
	:: d_step { length[1] > 0 -> take_head(1, f); done(f); drop_early(f); f = 0 }
	fi;

	/* A new batch, unless a refused one is left, from the queues in any order: whatever the scheduler does is in here. */
	if
	:: atomic {
		batch_frames == 0 ->
		do
		:: batch_frames < BATCH && MAY_LEAVE(0) -> take_head(0, batch[batch_frames]); batch_frames++
		:: batch_frames < BATCH && MAY_LEAVE(1) -> take_head(1, batch[batch_frames]); batch_frames++
		:: batch_frames > 0 || (!MAY_LEAVE(0) && !MAY_LEAVE(1)) -> break
		od;
		not_stuck = batch_frames > 0 || length[0] + length[1] == 0;
		CHECK(NOT_STUCK, not_stuck);
		assert(REACH != HELD_BY_FENCE || !(length[0] > 0 && HELD(0)) && !(length[1] > 0 && HELD(1)))
	}
	:: else
	fi;

	if
	:: batch_frames == 0 ->
		if
		:: atomic {
			reader_ended && x_head == x_tail_pub && b_head == b_tail_pub ->
			check_end();
			goto end
		}
		:: goto turn
		fi
	:: else
	fi;

	/* One bulk call, as in order.pml. */
	atomic {
		express_offered = express_owed == 0;
		CHECK(EXPRESS_OFFERED, express_offered);
		accepted = 0;
		dropped = false;
		if
		:: accepted = 1
		:: batch_frames == BATCH && !last_try -> accepted = BATCH
		:: dropped = true
		:: last_try ->
			assert(REACH != LAST_TRY_DROPS);
			dropped = true
		:: !last_try
		:: !last_try -> last_try = true
		:: !last_try -> given_up = true /* on-budget=requeue */
		fi;
		d_step {
			if
			:: accepted > 0 ->
				stamp_kept = x_head == x_tail_seen ||
					(batch[0] < x_frame[x_head % XCAP] && batch[accepted - 1] < x_frame[x_head % XCAP]);
				CHECK(STAMP_KEPT, stamp_kept);
				assert(REACH != BULK_WHILE_EXPRESS_WAITS || x_head == x_tail_seen);
				done(batch[0]);
				accept(batch[0]);
				if
				:: accepted == BATCH -> done(batch[1]); accept(batch[1])
				:: else
				fi
			:: dropped ->
				done(batch[0]);
				drop(batch[0]);
				accepted = 1
			:: given_up -> /* the last one taken first */
				assert(REACH != PUT_BACK || batch_frames < BATCH || queue_of[batch[0]] != queue_of[batch[1]]);
#ifdef MUT_PUT_BACK_IN_ORDER
				put_back(batch[0]);
				if
				:: batch_frames == BATCH -> put_back(batch[1])
				:: else
				fi;
#else
				if
				:: batch_frames == BATCH -> put_back(batch[1])
				:: else
				fi;
				put_back(batch[0]);
#endif
				accepted = batch_frames;
				given_up = false
			:: else
			fi;
			batch_frames = batch_frames - accepted;
			if
			:: accepted == 1 -> batch[0] = batch[1]; batch[1] = 0
			:: accepted == BATCH -> batch[0] = 0; batch[1] = 0
			:: else
			fi;
			accepted = 0;
			dropped = false;
			if
			:: batch_frames == 0 -> last_try = false
			:: else
			fi;
			express_owed = MIN(XQUOTA, x_tail_pub - x_head)
		}
	};
	goto turn;

end:
	skip
}
