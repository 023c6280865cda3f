// `split.cu` for boxes of more axes.

#define AXES 6
#include "split.cu"
