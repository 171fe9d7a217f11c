#include "plot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

bool plot_available(void)
{
    return system("command -v gnuplot >/dev/null 2>&1") == 0; /* NOLINT: a constant */
}

int plot_bars(const char *path, const char *title, const char *unit, bool logarithmic,
              const struct plot_bar *bars, size_t count)
{
    FILE *plot = popen("gnuplot", "we"); /* NOLINT: a constant */
    if (!plot)
        return -errno;
    fprintf(
        plot,
        "set terminal svg size 860,%zu font 'sans-serif,12' background '#ffffff'\n"
        "set output '%s'\nset title \"%s\" noenhanced\nset xlabel '%s' noenhanced\nset style fill solid 0.8\n"
        "set yrange [-0.6:%zu-0.4]\nset ytics noenhanced\nset grid x\nunset key\nset border 3\n%s",
        100 + 28 * count, path, title, unit, count, logarithmic ? "set logscale x\n" : "set xrange [0:*]\n");
    fprintf(plot, "$bars << END\n");
    /* the first on top */
    for (size_t i = 0; i < count; i++)
        fprintf(plot, "%zu %s %g %g %g\n", count - 1 - i, bars[i].name, bars[i].value, bars[i].low,
                bars[i].high);
    fprintf(plot,
            "END\nfrom = %s\n"
            "plot $bars using 3:1:(from):3:($1-0.35):($1+0.35):ytic(2) with boxxyerror lc rgb '#4477aa', "
            "$bars using 3:1:4:5 with xerrorbars lc rgb '#222222' pt 0 lw 1.5\n",
            logarithmic ? "1" : "0");
    return pclose(plot) == 0 ? 0 : -EIO;
}
