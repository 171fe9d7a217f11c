#include "build.h"

const char vmlane_build[] = VMLANE_BUILD;
