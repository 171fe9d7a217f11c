/* Per-flow order through the two lanes with bulk=fq: the reader sends every candidate to express with its stamp, the writer
 * moves bulk into a queue per flow and decides about a candidate from its own flow's queue. See README.md. */

#define FQ
#ifndef FRAMES
#define FRAMES 4
#endif
#include "lanes.pml"

chan queue[FLOWS] = [FRAMES] of { byte }; /* private to the writer */

/* Moves bulk entries below upto into their flows' queues. */
inline take_in(upto)
{
	do
	:: b_head < upto ->
		queue[flow_of[b_frame[b_head % BCAP]]] ! b_frame[b_head % BCAP];
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

/* A flow waits while a frame of it is in its queue or in the refused batch. */
#ifdef MUT_DONE_IS_DEQUEUED
#define FLOW_WAITS(flow) nempty(queue[flow])
#else
#define FLOW_WAITS(flow) \
	(nempty(queue[flow]) || (batch_frames > 0 && flow_of[batch[0]] == flow) || (batch_frames > 1 && flow_of[batch[1]] == flow))
#endif

active proctype writer()
{
	byte b_head, x_head; /* private cursors */
	byte x_tail_seen; /* copy of the reader's word, as of the last look */
	byte limit, upto, quota;
	byte batch[BATCH], batch_frames; /* the frames of a bulk call, kept while the device refuses them */
	byte accepted, f;
	bool dropped, refused, last_try;

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
			FLOW_WAITS(flow_of[f]) -> /* not empty: append */
			assert(REACH != APPENDED);
			assert(REACH != WAITS_IN_REFUSED_BATCH || nempty(queue[flow_of[f]]));
			queue[flow_of[f]] ! f;
			leave_express();
			f = 0
		}
		:: else ->
			if
			:: d_step { /* SENT */
				assert(REACH != PROMOTED_PAST_BULK ||
				       (empty(queue[1 - flow_of[f]]) && b_head == b_tail_pub));
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
	:: atomic { queue[0] ? f -> drop_early(f); f = 0 }
	:: atomic { queue[1] ? f -> drop_early(f); f = 0 }
	fi;

	/* A new batch, unless a refused one is left, from the queues in any order: whatever the scheduler does is in here. */
	if
	:: atomic {
		batch_frames == 0 ->
		do
		:: batch_frames < BATCH && nempty(queue[0]) -> queue[0] ? batch[batch_frames]; batch_frames++
		:: batch_frames < BATCH && nempty(queue[1]) -> queue[1] ? batch[batch_frames]; batch_frames++
		:: batch_frames == BATCH || (batch_frames > 0 || (empty(queue[0]) && empty(queue[1]))) -> break
		od
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
		fi;
		d_step {
			if
			:: accepted > 0 ->
				stamp_kept = x_head == x_tail_seen ||
					(batch[0] < x_frame[x_head % XCAP] && batch[accepted - 1] < x_frame[x_head % XCAP]);
				CHECK(STAMP_KEPT, stamp_kept);
				assert(REACH != BULK_WHILE_EXPRESS_WAITS || x_head == x_tail_seen);
				accept(batch[0]);
				if
				:: accepted == BATCH -> accept(batch[1])
				:: else
				fi
			:: dropped ->
				drop(batch[0]);
				accepted = 1
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
