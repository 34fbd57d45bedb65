// What Halide's CUDA runtime asks the application for: torch's context, which is the device's
// primary one, and its stream.
#include <dlfcn.h>
#include <stddef.h>

typedef void *Pointer;

static Pointer context, stream;

void peer_stream(Pointer given) { stream = given; }

static Pointer primary(void) {
  Pointer library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL), found = NULL;
  if (!library) return NULL;
  int (*start)(unsigned) = dlsym(library, "cuInit");
  int (*retain)(Pointer *, int) = dlsym(library, "cuDevicePrimaryCtxRetain");
  if (!start || !retain || start(0) || retain(&found, 0)) return NULL;
  return found;
}

int halide_cuda_acquire_context(Pointer user, Pointer *found, int create) {
  (void)user, (void)create;
  if (!context) context = primary();
  *found = context;
  return context ? 0 : -1;
}

int halide_cuda_release_context(Pointer user) {
  (void)user;
  return 0;
}

int halide_cuda_get_stream(Pointer user, Pointer of, Pointer *found) {
  (void)user, (void)of;
  *found = stream;
  return 0;
}
