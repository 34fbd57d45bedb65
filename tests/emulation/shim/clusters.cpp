// Clusters: addresses of another block's shared memory hold its rank and one in their high byte.
#include "runtime.h"

static constexpr int RANK_SHIFT = 24;

int cluster_rank() { return own().owner->rank; }

u32 place_in(u32 address, u32 block) {
  if (block >= launch.cluster) fail("there is no block %u in the cluster", block);
  return (address & ((1u << RANK_SHIFT) - 1)) | (block + 1) << RANK_SHIFT;
}

Place place_of(u32 address, Block& own_block) {
  const u32 high = address >> RANK_SHIFT;
  if (!high) return {&own_block, address};
  Block& there = own_block.cluster->blocks[high - 1];
  if (&there != &own_block && there.live == 0)
    fail("shared memory of block %u of the cluster, which has ended", high - 1);
  return {&there, address & ((1u << RANK_SHIFT) - 1)};
}

void store_there(u32 to, u32 value) {
  const Place there = place_of(to, *own().owner);
  memcpy(shared_bytes(*there.block, there.address, 4, 4, "st.shared::cluster"), &value, 4);
}

static int live_threads(const Cluster& cluster) {
  int live = 0;
  for (const Block& block : cluster.blocks) live += block.live;
  return live;
}

void cluster_arrive() {
  Thread& thread = own();
  Cluster& cluster = *thread.owner->cluster;
  if (thread.cluster_turn) fail("barrier.cluster.arrive twice without a wait");
  thread.cluster_turn = cluster.barrier.turn + 1;
  ++progress;
  if (++cluster.barrier.arrived < live_threads(cluster)) return;
  cluster.barrier.arrived = 0;
  ++cluster.barrier.turn;
}

void cluster_wait() {
  Thread& thread = own();
  if (!thread.cluster_turn) fail("barrier.cluster.wait without an arrival");
  const Meeting& barrier = thread.owner->cluster->barrier;
  wait_until("the barrier of the cluster", [&] { return barrier.turn >= thread.cluster_turn; });
  thread.cluster_turn = 0;
}
