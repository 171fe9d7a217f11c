#include "top_draw.h"

#include <errno.h>

/* ncurses is not among what is built for macOS: `top` prints lines there, and nothing below is called. */
int top_draw_open(bool colour)
{
    (void)colour;
    return -ENOTTY;
}

void top_draw_close(void)
{
}

int top_draw_rows(void)
{
    return 0;
}

int top_draw_columns(void)
{
    return 0;
}

int top_draw_key(int milliseconds)
{
    (void)milliseconds;
    return TOP_KEY_NONE;
}

void top_draw_begin(void)
{
}

void top_draw_end(void)
{
}

int top_draw_text(int row, int column, int columns, unsigned style, const char *format, ...)
{
    (void)row, (void)columns, (void)style, (void)format;
    return column;
}

void top_draw_right(int row, int column, int columns, unsigned style, const char *text)
{
    (void)row, (void)column, (void)columns, (void)style, (void)text;
}

void top_draw_bar(int row, int column, int columns, unsigned style, double part)
{
    (void)row, (void)column, (void)columns, (void)style, (void)part;
}

void top_draw_spark(int row, int column, int columns, const struct top_history *history,
                    enum top_series series)
{
    (void)row, (void)column, (void)columns, (void)history, (void)series;
}
