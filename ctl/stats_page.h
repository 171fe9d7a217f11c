/* stats_page: text in rows of a label and items, wrapped at 80 columns, coloured where asked for.
 *
 *     received        1,234 frames  5.67 MiB  89 calls
 *     ^label column   ^item column: items that do not fit go on below the first one
 *
 * Control characters in items are replaced by `?`, so that a text from outside cannot drive the terminal. The
 * page belongs to its caller; nothing is allocated. */
#ifndef VMLANE_CTL_STATS_PAGE_H
#define VMLANE_CTL_STATS_PAGE_H

#include "../shm/stats_view.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define PAGE_COLUMNS 80

enum page_style { PAGE_PLAIN, PAGE_BOLD, PAGE_GOOD, PAGE_WARN, PAGE_BAD };

/* Start with {.out, .colour}; the rest is the page's own. */
struct page {
    FILE *out;
    bool colour;
    bool first;      /* no item in the open row yet */
    int column;      /* where the open row has come to; 0: no row is open */
    int item_column; /* where its items go on */
};

/* Text as it is, but for control characters, in a style. */
void page_put(struct page *page, enum page_style style, const char *text);

/* Opens a row (and ends the one before): the label at its column, the first item at `item_column`, or two
 * behind a label that is longer. */
void page_row(struct page *page, int label_column, int item_column, enum page_style style, const char *label);

/* One more item of the open row. */
__attribute__((format(printf, 3, 4))) void page_item(struct page *page, enum page_style style,
                                                     const char *format, ...);

/* Ends the open row, if one is. */
void page_end(struct page *page);

/* The same and an empty line. */
void page_blank(struct page *page);

/* How a process's life and a link's state are coloured. */
enum page_style page_life_style(enum stats_life life);
enum page_style page_state_style(uint64_t link_state);

#endif
