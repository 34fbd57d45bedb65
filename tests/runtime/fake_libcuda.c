// A CUDA driver without a GPU: it notes what is launched, and what tensor maps are made of.
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ARGUMENTS 40
#define RECORDS 1024

struct Kernel {  // what a function handle points to
  int count, sizes[ARGUMENTS];
};

struct Config {
  uint32_t grid[3], block[3], shared;
  void *stream;
  const struct { uint32_t id, padding; int32_t value; uint8_t rest[60]; } *attributes;
  uint32_t count;
};

struct Record {
  struct Kernel *kernel;
  void *stream, *context;
  uint32_t grid[3], block[3], shared, early;
  uint8_t arguments[ARGUMENTS][128];
} fake_records[RECORDS];

struct Object {
  void *pointer;
  void (*destroy)(void *);
};

int fake_launches, fake_maps, fake_status, fake_map_status, fake_mode;
void *fake_capturing;      // the stream that is being captured
void *fake_graph[64];      // the user objects of the graph that it is captured into
int fake_graph_objects;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static __thread void *contexts[16];
static __thread int depth;

void fake_set_context(void *context) { depth = 0, contexts[0] = context; }

int cuCtxGetCurrent(void **context) { return *context = contexts[depth], 0; }
int cuCtxPushCurrent_v2(void *context) { return contexts[++depth] = context, 0; }
int cuCtxPopCurrent_v2(void **context) { return *context = contexts[depth--], 0; }

int cuLaunchKernelEx(const struct Config *config, struct Kernel *kernel, void **arguments,
                     void **extra) {
  (void)extra;
  if (fake_status) return fake_status;
  pthread_mutex_lock(&mutex);
  struct Record *record = &fake_records[fake_launches++ % RECORDS];
  record->kernel = kernel;
  record->stream = config->stream;
  record->context = contexts[depth];
  memcpy(record->grid, config->grid, sizeof record->grid);
  memcpy(record->block, config->block, sizeof record->block);
  record->shared = config->shared;
  record->early = config->count == 1 && config->attributes[0].id == 6 && config->attributes[0].value;
  for (int i = 0; i < kernel->count; i++)
    memcpy(record->arguments[i], arguments[i], kernel->sizes[i]);
  pthread_mutex_unlock(&mutex);
  sched_yield();
  return 0;
}

// The map holds what it was made of.
int cuTensorMapEncodeTiled(uint8_t *map, int type, uint32_t rank, uint64_t address,
                           const uint64_t *extents, const uint64_t *strides, const uint32_t *box,
                           const uint32_t *steps, int interleave, int swizzle, int promotion,
                           int outside) {
  if (fake_map_status || (uintptr_t)map % 64) return 1;
  fake_maps++;
  memset(map, 0, 128);
  const uint32_t head[] = {type, rank, interleave, swizzle, promotion, outside};
  memcpy(map, head, sizeof head);
  memcpy(map + 24, &address, 8);
  for (uint32_t i = 0; i < rank; i++) {
    ((uint32_t *)(map + 32))[i] = extents[i];
    ((uint32_t *)(map + 56))[i] = box[i] * steps[i];
    if (i + 1 < rank) ((uint32_t *)(map + 80))[i] = strides[i];
  }
  return 0;
}

int cuStreamIsCapturing(void *stream, int *status) {
  if (fake_capturing && (uintptr_t)stream <= 1) return 906;
  *status = fake_capturing && stream == fake_capturing;
  return 0;
}

int cuPointerGetAttribute(void *result, int attribute, uint64_t address) {
  (void)address;
  *(int *)result = 0;
  return attribute == 9 ? 0 : 1;
}

int cuThreadExchangeStreamCaptureMode(int *mode) {
  const int old = fake_mode;
  fake_mode = *mode;
  *mode = old;
  return 0;
}

uint64_t fake_captures;

int cuStreamGetCaptureInfo_v2(void *stream, int *status, uint64_t *number, void **graph,
                              void *dependencies, void *count) {
  (void)dependencies, (void)count;
  *status = stream == fake_capturing;
  *number = fake_captures;
  *graph = fake_graph;
  return 0;
}

int cuUserObjectCreate(struct Object **made, void *pointer, void (*destroy)(void *),
                       unsigned references, unsigned flags) {
  static struct Object objects[64];
  static int count;
  if (references != 1 || flags != 1) return 1;
  *made = &objects[count++ % 64];
  (*made)->pointer = pointer;
  (*made)->destroy = destroy;
  return 0;
}

int cuGraphRetainUserObject(void **graph, struct Object *object, unsigned count, unsigned flags) {
  if (graph != fake_graph || count != 1 || flags != 1) return 1;
  graph[fake_graph_objects++] = object;
  return 0;
}

void fake_destroy_graph(void) {
  while (fake_graph_objects) {
    struct Object *object = fake_graph[--fake_graph_objects];
    object->destroy(object->pointer);
  }
}

// What a program without CuPy needs: devices, machine code, memory.

static struct { const char *name; struct Kernel *kernel; } known[64];
static int known_count;
int fake_loaded, fake_held, fake_capability = 90, fake_shared;

void fake_know(const char *name, struct Kernel *kernel) {
  known[known_count].name = strdup(name), known[known_count++].kernel = kernel;
}

int cuInit(unsigned flags) { return flags; }
int cuDeviceGet(int *device, int number) { return *device = number, number > 1 ? 101 : 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  *value = attribute == 75   ? fake_capability / 10
           : attribute == 76 ? fake_capability % 10
           : attribute == 16 ? 4
                             : 0;
  return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
  return *context = (void *)(uintptr_t)(device ? 0x200 : 0x100), 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) { return device > 1; }
int cuCtxSynchronize(void) { return 0; }
int cuModuleLoadData(void **module, const void *image) {
  return *module = (void *)image, fake_loaded++, 0;
}
int cuModuleUnload(void *module) { return fake_loaded--, !module; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
  (void)module;
  for (int i = known_count; i--;)
    if (!strcmp(known[i].name, name)) return *function = known[i].kernel, 0;
  return 500;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
  (void)function;
  fake_shared = value;
  return attribute != 8;
}
int cuMemAlloc_v2(uint64_t *address, size_t size) {
  return *address = (uint64_t)(uintptr_t)malloc(size), fake_held++, *address ? 0 : 2;
}
int cuMemFree_v2(uint64_t address) { return free((void *)(uintptr_t)address), fake_held--, 0; }
int cuMemAllocAsync(uint64_t *address, size_t size, void *stream) {
  (void)stream;
  return cuMemAlloc_v2(address, size);
}
int cuMemFreeAsync(uint64_t address, void *stream) {
  (void)stream;
  return cuMemFree_v2(address);
}
int cuMemsetD8Async(uint64_t address, unsigned char value, size_t size, void *stream) {
  (void)stream;
  memset((void *)(uintptr_t)address, value, size);
  return 0;
}
int cuGetErrorName(int status, const char **name) {
  *name = status == 906 ? "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT" : "CUDA_ERROR_OF_THE_FAKE";
  return 0;
}
