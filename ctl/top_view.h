/* top_view: the screens of `vmlanectl top`: all links, one link, the help. They draw what the model and the sampler
 * hold, at whatever size the terminal has now, and change nothing. */
#ifndef VMLANE_CTL_TOP_VIEW_H
#define VMLANE_CTL_TOP_VIEW_H

#include "top_draw.h"

#define TOP_COLUMNS_MIN 40
#define TOP_ROWS_MIN    8

enum top_screen { TOP_SCREEN_LINKS, TOP_SCREEN_LINK, TOP_SCREEN_HELP };

struct top_view {
    enum top_screen screen;
    bool paused;
    bool typing;      /* the filter is being typed */
    size_t first_row; /* of the list; kept so that the chosen one is in sight */
    int scroll;       /* rows of the link's screen that are above its top */
    char message[80]; /* of the last key; empty: none */
};

/* Draws the whole screen. */
void top_view_draw(struct top_view *view, const struct top_model *model, const struct sampler *sampler);

#endif
