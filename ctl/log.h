/* log: lines on stderr, `LEVEL unit: message`, by the control thread only.
 *
 * Colour only on a terminal, and never with NO_COLOR. */
#ifndef VMLANE_CTL_LOG_H
#define VMLANE_CTL_LOG_H

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Lines above this level are not written; LOG_LEVEL_INFO at start. */
void log_set_level(enum log_level level);

__attribute__((format(printf, 3, 4))) void log_line(enum log_level level, const char *unit,
                                                    const char *format, ...);

#endif
