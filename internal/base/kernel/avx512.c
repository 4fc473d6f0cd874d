#include "stk.h"
#ifdef __x86_64__
const stk_target stk_avx512;
#endif
