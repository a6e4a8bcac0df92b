/* sum.c: a sum over ranks, which are threads or the processes of mpirun.

     cc -O2 -I. examples/sum.c examples/neo.c -o sum -lm -lpthread && ./sum
     mpicc -DNEO_COMM_MPI -O2 -I. examples/sum.c examples/neo.c -o sum_mpi -lm -lpthread
     mpirun --oversubscribe -n 4 ./sum_mpi     (MPICH: mpirun -n 4)

   Expect `4 ranks: 400.200012`. */
#include "neo_comm.h"
#include <stdio.h>

/* A trainer is a function that every rank runs. Ranks that are threads share globals. */
static neo_status train(neo_comm *comm, void *user) {
    float grad[1000]; /* of this rank's samples */
    for (int i = 0; i < 1000; i++) grad[i] = 0.1f * (float)(neo_comm_rank(comm) + i);
    neo_status status = neo_comm_all_reduce(comm, NEO_REDUCE_SUM, grad, grad, 1000, NEO_F32, NULL);
    if (status == NEO_OK && neo_comm_rank(comm) == 0)
        printf("%d ranks: %.9g\n", neo_comm_size(comm), (double)grad[999]);
    (void)user;
    return status;
}

int main(void) {
    neo_comm_desc desc = {.ranks = 4}; /* threads; a launcher knows itself how many it starts */
    if (neo_comm_init_env(&desc, train, NULL) == NEO_OK) return 0;
    fprintf(stderr, "sum: %s\n", neo_last_error());
    return 1;
}
