// Threads as fibers: a launch's blocks one after the other, the warps of a block in turns.
#include "runtime.h"
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>

ThreadView* here;
uint3 block_size, grid_size;
Launch launch;
u64 progress;

static constexpr size_t STACK = 1 << 18;
static void* scheduler;  // its stack pointer while a thread runs
static std::deque<std::function<void()>> unfinished;

// Saves the registers that a call keeps on one stack, and takes them from the other.
extern "C" void switch_stacks(void** from, void* to);
asm(R"(
.text
.type switch_stacks, @function
switch_stacks:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
)");

Thread& own() { return *static_cast<Thread*>(here); }
int own_lane() { return own().number % 32; }

static void say(const char* text) {
  if (write(launch.report, text, strlen(text)) < 0) _exit(2);
  _exit(1);
}

void fail(const char* form, ...) {
  char text[600];
  va_list values;
  va_start(values, form);
  const int length = vsnprintf(text, 400, form, values);
  va_end(values);
  if (here)
    snprintf(text + std::min(length, 399), 200, " (block %u %u %u, thread %u)", here->block.x,
             here->block.y, here->block.z, here->thread.x);
  say(text);
  __builtin_unreachable();
}

// Memory that cannot be touched: the parent knows what lies there. Of an address that an
// instruction refuses (misaligned, or none at all) the kernel does not tell which.
static void memory_fault(int, siginfo_t* info, void*) {
  if (info->si_code == SI_KERNEL) fail("an access that the processor refuses");
  fail("memory fault at %p", info->si_addr);
}

void let_others_run(const char* waits) {
  Thread& thread = own();
  thread.waits = waits;
  switch_stacks(&thread.stack_pointer, scheduler);
  thread.waits = nullptr;
}

void later(std::function<void()> end) { unfinished.push_back(std::move(end)); }

static void leave(Thread& thread) {
  end_copies(thread, thread.copies);
  end_stores(thread);
  thread.done = true;
  ++progress;
  Block& block = *thread.owner;
  Warp& warp = block.warps[thread.number / 32];
  --block.live;
  --warp.live;
  if (warp.live && warp.arrived)
    fail("a thread ends while others of its warp are at %s", warp.instruction);
  Meeting& barrier = block.barriers[0];
  if (block.live && barrier.arrived >= block.live) {
    barrier.arrived = 0;
    ++barrier.turn;
  }
}

static void thread_body() {
  launch.body(launch.arguments);
  leave(own());
  for (;;) let_others_run("nothing");
}

static void start(Thread& thread, char* stack) {
  void** top = reinterpret_cast<void**>(stack + STACK - 64);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(thread_body);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  thread.stack_pointer = top;
}

static void run_thread(Thread& thread) {
  if (thread.done) return;
  here = &thread;
  switch_stacks(&scheduler, thread.stack_pointer);
  here = nullptr;
}

// The thread that would be the first, and the last in fact; its warp waits for it wherever lanes
// meet, so that other warps are ahead.
static Thread* slow_one(Block& block) {
  if (!(launch.order & SLOW)) return nullptr;
  return launch.order & BACKWARDS ? &block.threads.back() : &block.threads.front();
}

// A warp runs until all of its lanes wait: warps drift apart as far as the program lets them.
static void run_warp(Block& block, int warp) {
  const int threads = block.threads.size();
  const int first = warp * 32, last = std::min(first + 32, threads) - 1;
  u64 before;
  do {
    before = progress;
    for (int i = first; i <= last; ++i) {
      Thread& thread = block.threads[launch.order & BACKWARDS ? first + last - i : i];
      if (&thread != slow_one(block)) run_thread(thread);
    }
  } while (progress != before);
}

static void all_wait(Cluster& cluster) {
  for (Block& block : cluster.blocks)
    for (Thread& thread : block.threads)
      if (!thread.done) {
        here = &thread;
        fail("all threads wait, this one at %s", thread.waits);
      }
}

static bool is_live(const Cluster& cluster) {
  for (const Block& block : cluster.blocks)
    if (block.live) return true;
  return false;
}

static void end_one() {
  const bool last = launch.order & BACKWARDS;
  auto end = std::move(last ? unfinished.back() : unfinished.front());
  last ? unfinished.pop_back() : unfinished.pop_front();
  end();
  ++progress;
}

static void run_cluster(Cluster& cluster) {
  while (is_live(cluster)) {
    const u64 before = progress;
    for (Block& block : cluster.blocks) {
      const int warps = block.warps.size();
      for (int i = 0; i < warps; ++i)
        run_warp(block, launch.order & BACKWARDS ? warps - 1 - i : i);
    }
    if (progress == before && launch.order & SLOW)
      for (Block& block : cluster.blocks) run_thread(*slow_one(block));
    if (progress != before) continue;
    if (unfinished.empty()) all_wait(cluster);
    end_one();
  }
  while (!unfinished.empty()) end_one();
}

static void set_up(Block& block, uint3 number, unsigned char* shared, char* stacks) {
  const u32 threads = launch.threads;
  block.writers.assign(launch.shared_bytes, 0);
  block.number = number;
  block.shared = shared;
  block.live = threads;
  block.threads.resize(threads);
  block.warps.resize((threads + 31) / 32);
  for (u32 i = 0; i < threads; ++i) {
    Thread& thread = block.threads[i];
    thread.thread = {i, 0, 0};
    thread.block = number;
    thread.shared = shared;
    thread.owner = &block;
    thread.number = i;
    thread.done = false;
    thread.waits = nullptr;
    thread.cluster_turn = 0;
    thread.copies = 0;
    ++block.warps[i / 32].live;
    start(thread, stacks + i * STACK);
  }
  memset(shared, launch.poison, launch.shared_bytes);
}

void* pages(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                 -1, 0);
  if (p == MAP_FAILED) fail("no memory for %zu bytes", bytes);
  return p;
}

static void catch_faults() {
  stack_t stack = {pages(1 << 16), 0, 1 << 16};
  sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = memory_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE}) sigaction(signal, &action, nullptr);
}

// Runs a launch; a failure is written to its pipe and ends the process. `shared` holds the shared
// memory of each block of a cluster.
extern "C" void emulate(const Launch* wanted, unsigned char** shared) {
  launch = *wanted;
  catch_faults();
  block_size = {launch.threads, 1, 1};
  grid_size = launch.grid;
  char* stacks = (char*)pages((size_t)launch.threads * launch.cluster * STACK);
  for (u32 z = 0; z < launch.grid.z; ++z)
    for (u32 y = 0; y < launch.grid.y; ++y)
      for (u32 x = 0; x < launch.grid.x; x += launch.cluster) {
        Cluster cluster;
        cluster.blocks.resize(launch.cluster);
        for (u32 i = 0; i < launch.cluster; ++i) {
          Block& block = cluster.blocks[i];
          block.rank = i;
          block.cluster = &cluster;
          set_up(block, {x + i, y, z}, shared[i], stacks + (size_t)i * launch.threads * STACK);
        }
        run_cluster(cluster);
        for (Block& block : cluster.blocks)
          if (block.tensor) {
            here = &block.threads[0];
            fail("tensor memory is still allocated in the end");
          }
      }
  munmap(stacks, (size_t)launch.threads * launch.cluster * STACK);
}
