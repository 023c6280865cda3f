// `join.cu` for boxes of more axes.

#define AXES 6
#include "join.cu"
