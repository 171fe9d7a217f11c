/* top_zoom: the screen of one link in `vmlanectl top`: each path's rates, drops by cause, lanes and waits, and the
 * workers that run it. */
#ifndef VMLANE_CTL_TOP_ZOOM_H
#define VMLANE_CTL_TOP_ZOOM_H

#include "top_draw.h"

/* Draws the chosen link on so many rows from `top` on; `*scroll` rows of it are above them, as far as it is
 * longer. */
void top_zoom_draw(int top, int rows, int *scroll, const struct top_model *model,
                   const struct sampler *sampler);

/* What stands above workers. */
extern const char top_zoom_worker_heading[];

/* One worker on one row: name, core, busy share, where its time went. */
void top_zoom_worker(int row, const struct sampler *sampler, const struct snapshot_process *process,
                     size_t worker);

#endif
