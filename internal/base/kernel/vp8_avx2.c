// vp8_decode.h for Haswell, Zen and later.
#include "stk.h"

#ifdef __x86_64__
#pragma GCC target("avx2,bmi,bmi2,lzcnt")
#pragma GCC optimize("O3")
#define DECODE stk_vp8_avx2
#define MERGE stk_samples_avx2.merge
#include "vp8_decode.h"
#endif
