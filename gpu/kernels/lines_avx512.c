#define LINES_VARIANT avx512
#define LINES_VECTOR_BYTES 64
#include "gpu/kernels/lines_body.h"
