/* vmlane_exec: `vmlane exec`: runs a command, as a virtual machine monitor, that inherits its end of a link: a connected
 * unix datagram socket at a descriptor of a known number (--fd, 3). The link lives as long as the command.
 *
 * Signals that vmlane gets (signals.h) are handed on to the command, but for those that the terminal sends to both. */
#ifndef VMLANE_CTL_VMLANE_EXEC_H
#define VMLANE_CTL_VMLANE_EXEC_H

#define EXEC_FAILED      125 /* vmlane itself, as with env(1) */
#define EXEC_CANNOT_RUN  126
#define EXEC_NOT_FOUND   127
#define EXEC_BY_SIGNAL   128 /* plus its number */
#define EXEC_PLACEHOLDER "{fd}"

/* argv[0] is "exec". Returns the exit status: the command's own, or one of the above. */
int vmlane_exec(int argc, char **argv);

#endif
