#include "top_draw.h"

#include <errno.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <ncurses.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES 1024

/* ncurses has one terminal a process, and this is what we know of it. */
static struct {
    SCREEN *screen;
    bool colour;
    bool utf8;
} terminal;

int top_draw_open(bool colour)
{
    const char *type = getenv("TERM");
    setlocale(LC_CTYPE, "");
    terminal.screen = newterm(NULL, stdout, stdin);
    if (!terminal.screen)
        return -ENOTTY;
    terminal.colour = colour && has_colors();
    terminal.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0 && type && strncmp(type, "vt", 2) != 0;
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, TRUE);
    set_escdelay(50);
    curs_set(0);
    if (terminal.colour) {
        start_color();
        use_default_colors();
        init_pair(PAGE_GOOD, COLOR_GREEN, -1);
        init_pair(PAGE_WARN, COLOR_YELLOW, -1);
        init_pair(PAGE_BAD, COLOR_RED, -1);
        init_pair(TOP_HEADING, COLOR_CYAN, -1);
    }
    return 0;
}

void top_draw_close(void)
{
    endwin();
    delscreen(terminal.screen);
    terminal.screen = NULL;
}

int top_draw_rows(void)
{
    return getmaxy(stdscr);
}

int top_draw_columns(void)
{
    return getmaxx(stdscr);
}

int top_draw_key(int milliseconds)
{
    static const struct {
        int curses;
        int key;
    } keys[] = {{ERR, TOP_KEY_NONE},
                {KEY_ENTER, TOP_KEY_ENTER},
                {'\r', TOP_KEY_ENTER},
                {KEY_BACKSPACE, TOP_KEY_BACKSPACE},
                {'\b', TOP_KEY_BACKSPACE},
                {KEY_UP, TOP_KEY_UP},
                {KEY_DOWN, TOP_KEY_DOWN},
                {KEY_LEFT, TOP_KEY_LEFT},
                {KEY_RIGHT, TOP_KEY_RIGHT},
                {KEY_HOME, TOP_KEY_HOME},
                {KEY_END, TOP_KEY_END},
                {KEY_PPAGE, TOP_KEY_PAGE_UP},
                {KEY_NPAGE, TOP_KEY_PAGE_DOWN},
                {KEY_RESIZE, TOP_KEY_RESIZE}};
    timeout(milliseconds);
    int key = getch();
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (keys[i].curses == key)
            return keys[i].key;
    }
    return key >= 0 && key < 256 ? key : TOP_KEY_OTHER;
}

void top_draw_begin(void)
{
    erase();
}

void top_draw_end(void)
{
    refresh();
}

static attr_t attribute(unsigned style)
{
    static const attr_t with_colour[TOP_STYLE_COUNT] = {
        [PAGE_PLAIN] = A_NORMAL, [PAGE_BOLD] = A_BOLD,     [PAGE_GOOD] = A_NORMAL,
        [PAGE_WARN] = A_BOLD,    [PAGE_BAD] = A_BOLD,      [TOP_TITLE] = A_REVERSE,
        [TOP_HEADING] = A_BOLD,  [TOP_CHOSEN] = A_REVERSE, [TOP_FAINT] = A_DIM};
    static const attr_t without[TOP_STYLE_COUNT] = {
        [PAGE_BOLD] = A_BOLD,    [PAGE_WARN] = A_BOLD,        [PAGE_BAD] = A_REVERSE,
        [TOP_TITLE] = A_REVERSE, [TOP_HEADING] = A_UNDERLINE, [TOP_CHOSEN] = A_REVERSE};
    if (!terminal.colour)
        return without[style];
    bool paired = style == PAGE_GOOD || style == PAGE_WARN || style == PAGE_BAD || style == TOP_HEADING;
    return with_colour[style] | (paired ? (attr_t)COLOR_PAIR((int)style) : 0);
}

/* How many columns of text there is room for. */
static int room(int row, int column, int columns)
{
    if (row < 0 || row >= top_draw_rows() || column < 0 || column >= top_draw_columns())
        return 0;
    int left = top_draw_columns() - column;
    return columns < left ? columns : left;
}

/* Texts come from outside: what drives a terminal, or is no ASCII, is shown as `?`. */
int top_draw_text(int row, int column, int columns, unsigned style, const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (char *at = text; *at != '\0'; at++) {
        if (*at < ' ' || *at > '~')
            *at = '?';
    }
    int length = (int)strlen(text), most = room(row, column, columns);
    attrset((int)attribute(style));
    mvaddnstr(row, column, text, most);
    attrset(A_NORMAL);
    return column + (length < most ? length : most);
}

void top_draw_right(int row, int column, int columns, unsigned style, const char *text)
{
    int gap = columns - (int)strlen(text);
    top_draw_text(row, column + (gap > 0 ? gap : 0), columns, style, "%s", text);
}

void top_draw_bar(int row, int column, int columns, unsigned style, double part)
{
    int inner = columns - 2;
    if (inner < 1 || room(row, column, columns) < columns)
        return;
    double wanted = part < 0 ? 0 : part > 1 ? 1 : part;
    int full = (int)(wanted * inner);
    if (full == 0 && part > 0)
        full = 1; /* a little is not nothing */
    mvaddch(row, column, '[');
    attrset((int)attribute(style));
    for (int i = 0; i < inner; i++)
        mvaddch(row, column + 1 + i, i < full ? '#' : ' ');
    attrset(A_NORMAL);
    mvaddch(row, column + 1 + inner, ']');
}

void top_draw_spark(int row, int column, int columns, const struct top_history *history,
                    enum top_series series)
{
    static const char *const fine[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const plain[] = {" ", ".", ".", ":", ":", "+", "*", "#", "@"};
    const char *const *step = terminal.utf8 ? fine : plain;
    double highest = 0;
    columns = room(row, column, columns);
    for (int i = 0; i < columns; i++) {
        double value = top_history_value(history, series, (unsigned)i);
        highest = value > highest ? value : highest;
    }
    for (int i = 0; i < columns; i++) {
        double value = top_history_value(history, series, (unsigned)(columns - 1 - i));
        int height = highest > 0 ? (int)(value / highest * 8 + 0.5) : 0;
        if (height == 0 && value > 0)
            height = 1;
        mvaddstr(row, column + i, step[height]);
    }
}
