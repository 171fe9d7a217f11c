/* build: which build this is: version and commit, for --version, the stats segments and messages. */
#ifndef VMLANE_CTL_BUILD_H
#define VMLANE_CTL_BUILD_H

extern const char vmlane_build[];

#endif
