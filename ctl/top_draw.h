/* top_draw: what the screens of `vmlanectl top` are made of: text in styles, bars, sparklines.
 *
 * Everything is cut at the screen's edges. Without colours (NO_COLOR, a terminal that has none) styles are
 * bold, reverse and underlined; without UTF-8, or on a terminal of the vt family, sparklines and bars are
 * ASCII. ncurses has one screen a process, so this has too: between top_draw_open and top_draw_close, by one
 * thread. */
#ifndef VMLANE_CTL_TOP_DRAW_H
#define VMLANE_CTL_TOP_DRAW_H

#include "stats_page.h"
#include "top_model.h"

/* Styles beyond those of pages. */
enum { TOP_TITLE = PAGE_BAD + 1, TOP_HEADING, TOP_CHOSEN, TOP_FAINT, TOP_STYLE_COUNT };

/* Takes the terminal. Returns 0, or -ENOTTY if its type cannot place text. */
int top_draw_open(bool colour);
void top_draw_close(void);

int top_draw_rows(void);
int top_draw_columns(void);

/* Keys that are no letters; letters are themselves. */
enum {
    TOP_KEY_NONE = -1, /* none was pressed */
    TOP_KEY_ENTER = '\n',
    TOP_KEY_ESCAPE = 27,
    TOP_KEY_BACKSPACE = 127,
    TOP_KEY_UP = 256,
    TOP_KEY_DOWN,
    TOP_KEY_LEFT,
    TOP_KEY_RIGHT,
    TOP_KEY_HOME,
    TOP_KEY_END,
    TOP_KEY_PAGE_UP,
    TOP_KEY_PAGE_DOWN,
    TOP_KEY_RESIZE, /* the terminal has another size now */
    TOP_KEY_OTHER
};

/* Waits for a key, at most so long. */
int top_draw_key(int milliseconds);

/* An empty screen to draw on; then what was drawn is shown. */
void top_draw_begin(void);
void top_draw_end(void);

/* Text from a column on, at most so many columns of it (INT_MAX: to the edge). Returns the column after it. */
__attribute__((format(printf, 5, 6))) int top_draw_text(int row, int column, int columns, unsigned style,
                                                        const char *format, ...);

/* The same at the right end of a field of so many columns. */
void top_draw_right(int row, int column, int columns, unsigned style, const char *text);

/* `[####......]`, so many columns in all. */
void top_draw_bar(int row, int column, int columns, unsigned style, double part);

/* The newest samples of a series, one a column, newest at the right; the highest of them is a full column. */
void top_draw_spark(int row, int column, int columns, const struct top_history *history,
                    enum top_series series);

#endif
