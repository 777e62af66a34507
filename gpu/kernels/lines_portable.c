#define LINES_VARIANT portable
#define LINES_VECTOR_BYTES 16
#include "gpu/kernels/lines_body.h"
