/* The two settings of "best", for a Python process: MKL's path for this processor, and no page faults for fresh tensors. */
#include <limits.h>
#include <malloc.h>

int mkl_serv_intel_cpu_true(void) { return 1; }

__attribute__((constructor)) static void tune_malloc(void) {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
}
