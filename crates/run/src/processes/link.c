/* What `mpi.rs` calls of MPI, in types that every MPI has. */

#include <mpi.h>
#include <stdlib.h>

/* Starts MPI: 0 if it has been started before, or cannot be. */
int shardloom_mpi_start(void) {
    int started, given;
    if (MPI_Initialized(&started) != MPI_SUCCESS || started) return 0;
    return MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &given) == MPI_SUCCESS;
}

void shardloom_mpi_finish(void) { MPI_Finalize(); }

void shardloom_mpi_abort(int code) {
    MPI_Abort(MPI_COMM_WORLD, code);
    abort();
}

int shardloom_mpi_rank(void) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

int shardloom_mpi_size(void) {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}

static MPI_Request *request(void) {
    MPI_Request *it = malloc(sizeof *it);
    if (!it) shardloom_mpi_abort(3);
    return it;
}

/* Begins to send; the bytes have to stay until it is done. */
void *shardloom_mpi_send(const void *bytes, int count, int to, int tag) {
    MPI_Request *it = request();
    MPI_Isend(bytes, count, MPI_BYTE, to, tag, MPI_COMM_WORLD, it);
    return it;
}

/* Begins to receive; the bytes have to stay until it is done. */
void *shardloom_mpi_receive(void *bytes, int count, int from, int tag) {
    MPI_Request *it = request();
    MPI_Irecv(bytes, count, MPI_BYTE, from, tag, MPI_COMM_WORLD, it);
    return it;
}

/* Whether what was begun is done: then it is freed. */
int shardloom_mpi_done(void *begun) {
    int done = 0;
    MPI_Test(begun, &done, MPI_STATUS_IGNORE);
    if (done) free(begun);
    return done;
}
