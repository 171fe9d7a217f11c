#include "stats_page.h"

#include <ctype.h>
#include <stdarg.h>
#include <string.h>

#define ITEM_GAP   2
#define ITEM_BYTES (STATS_SPEC_BYTES + 128)

void page_put(struct page *page, enum page_style style, const char *text)
{
    static const char *const code[] = {
        [PAGE_PLAIN] = "", [PAGE_BOLD] = "1", [PAGE_GOOD] = "32", [PAGE_WARN] = "33", [PAGE_BAD] = "31"};
    bool coloured = page->colour && style != PAGE_PLAIN;
    if (coloured)
        fprintf(page->out, "\033[%sm", code[style]);
    for (; *text != '\0'; text++)
        putc(iscntrl((unsigned char)*text) ? '?' : *text, page->out);
    if (coloured)
        fputs("\033[0m", page->out);
}

void page_end(struct page *page)
{
    if (page->column > 0)
        putc('\n', page->out);
    page->column = 0;
}

void page_blank(struct page *page)
{
    page_end(page);
    putc('\n', page->out);
}

void page_row(struct page *page, int label_column, int item_column, enum page_style style, const char *label)
{
    page_end(page);
    int used = label_column + (int)strlen(label);
    int gap = used + ITEM_GAP > item_column ? ITEM_GAP : item_column - used;
    fprintf(page->out, "%*s", label_column, "");
    page_put(page, style, label);
    fprintf(page->out, "%*s", gap, "");
    page->column = used + gap;
    page->item_column = item_column;
    page->first = true;
}

void page_item(struct page *page, enum page_style style, const char *format, ...)
{
    char text[ITEM_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    int length = (int)strlen(text);
    if (!page->first && page->column + ITEM_GAP + length > PAGE_COLUMNS) {
        fprintf(page->out, "\n%*s", page->item_column, "");
        page->column = page->item_column;
    } else if (!page->first) {
        fprintf(page->out, "%*s", ITEM_GAP, "");
        page->column += ITEM_GAP;
    }
    page_put(page, style, text);
    page->column += length;
    page->first = false;
}

enum page_style page_life_style(enum stats_life life)
{
    static const enum page_style style[] = {
        [STATS_LIVE] = PAGE_GOOD, [STATS_STOPPED] = PAGE_WARN, [STATS_DEAD] = PAGE_BAD};
    return style[life];
}

enum page_style page_state_style(uint64_t link_state)
{
    static const enum page_style style[] = {
        [LINK_STATE_WAITING] = PAGE_WARN, [LINK_STATE_UP] = PAGE_GOOD,  [LINK_STATE_REFUSED] = PAGE_WARN,
        [LINK_STATE_STALLED] = PAGE_BAD,  [LINK_STATE_DOWN] = PAGE_BAD, [LINK_STATE_PAUSED] = PAGE_WARN,
        [LINK_STATE_REMOVED] = PAGE_BAD};
    return link_state < sizeof style / sizeof style[0] ? style[link_state] : PAGE_BAD;
}
