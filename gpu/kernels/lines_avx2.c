#define LINES_VARIANT avx2
#define LINES_VECTOR_BYTES 32
#include "gpu/kernels/lines_body.h"
