/* Per-flow order through the two lanes with bulk=fifo: the reader's table decides about candidates, the writer keeps to the
 * snapshot and the stamp. See README.md for bounds and faults. */

#include "lanes.pml"

active proctype writer()
{
	byte b_head, x_head; /* private cursors; b_head counts frames accepted or dropped */
	byte x_tail_seen; /* copy of the reader's word, as of the last look */
	byte limit; /* bulk entries below this may go */
	byte quota;
	byte batch[BATCH], batch_frames; /* the frames of a bulk call, kept while the device refuses them */
	byte accepted;
	bool dropped, refused, last_try;
#ifdef MUT_DONE_IS_DEQUEUED
	byte b_dequeued;
#endif

turn:
#ifdef MUT_RETRY_WITHOUT_EXPRESS
	if
	:: batch_frames > 0 -> goto transmit
	:: else
	fi;
#endif
#ifndef MUT_TAIL_AFTER_EXPRESS
	limit = b_tail_pub; /* rule 2: before the look at express */
#endif
#ifdef MUT_STALE_EXPRESS_TAIL
	if
	:: x_head == x_tail_seen -> x_tail_seen = x_tail_pub
	:: else
	fi;
#else
	x_tail_seen = x_tail_pub; /* the look: always a fresh load, also where the copy is not used up */
#endif

	atomic { quota = XQUOTA; refused = false };
	do
	:: x_head != x_tail_seen && quota > 0 && !refused ->
		if
		:: d_step { /* SENT */
			assert(REACH != PROMOTED_PAST_BULK || b_head == b_tail_pub ||
			       b_frame[b_head % BCAP] > x_frame[x_head % XCAP]);
			accept(x_frame[x_head % XCAP]);
			x_frame[x_head % XCAP] = 0;
			x_stamp[x_head % XCAP] = 0;
			x_head++;
			quota--;
			express_owed = (express_owed -> express_owed - 1 : 0)
		}
		:: d_step { /* BAD_FRAME, or express's own budget is spent */
			drop(x_frame[x_head % XCAP]);
			x_frame[x_head % XCAP] = 0;
			x_stamp[x_head % XCAP] = 0;
			x_head++;
			quota--;
			express_owed = (express_owed -> express_owed - 1 : 0)
		}
		:: d_step { refused = true; express_owed = 0 } /* BUSY */
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

	/* A new batch, unless a refused one is left. */
	if
	:: d_step {
		batch_frames == 0 ->
#ifdef MUT_DONE_IS_DEQUEUED
#define NEXT b_dequeued
#else
#define NEXT b_head
#endif
		do
		:: batch_frames < BATCH && NEXT + batch_frames < limit ->
			batch[batch_frames] = b_frame[(NEXT + batch_frames) % BCAP];
			batch_frames++
		:: else -> break
		od;
#ifdef MUT_DONE_IS_DEQUEUED
		b_dequeued = b_dequeued + batch_frames
#endif
	}
	:: else
	fi;
#ifdef MUT_DONE_IS_DEQUEUED
	b_head_pub = b_dequeued;
#endif
	d_step { limit = 0; quota = 0; refused = false };

transmit:
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

	/* One bulk call. It is one step: only this thread talks to the device. (atomic, not d_step, where there is a choice:
	 * inside d_step Spin takes the first choice only.) */
	atomic {
		express_offered = express_owed == 0;
		CHECK(EXPRESS_OFFERED, express_offered);
		accepted = 0;
		dropped = false;
		if
		:: accepted = 1 /* SENT; on a last try the call has one frame */
		:: batch_frames == BATCH && !last_try -> accepted = BATCH
		:: dropped = true /* BAD_FRAME */
		:: last_try -> /* BUSY */
			assert(REACH != LAST_TRY_DROPS);
			dropped = true
		:: !last_try /* BUSY: the batch is kept */
		:: !last_try -> last_try = true /* BUSY, and the budget is spent */
		fi;
		d_step {
			if
			:: accepted > 0 ->
				stamp_kept = x_head == x_tail_seen || b_head + accepted <= x_stamp[x_head % XCAP];
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
#ifdef MUT_REFUSED_IS_RELEASED
				-> accepted = batch_frames
#endif
			fi;
#ifdef MUT_RESENT_AFTER_SHORT
			if
			:: accepted < batch_frames -> accepted = 0
			:: else
			fi;
#endif
			b_head = b_head + accepted;
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
#ifndef MUT_DONE_IS_DEQUEUED
	b_head_pub = b_head; /* done: after acceptance or drop, never before */
#endif
	goto turn;

end:
	skip
}
