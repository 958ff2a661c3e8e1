/* A compiler of kernels that hands sources through, for tests: the driver of a GPU that is not there
   takes sources. */

#include <stdlib.h>
#include <string.h>

typedef struct { char *source; int compiled; } program;

int nvrtcVersion(int *major, int *minor) { *major = 13; *minor = 0; return 0; }
const char *nvrtcGetErrorString(int status) { return status ? "emulated: not a program, or not compiled" : "fine"; }
int nvrtcCreateProgram(program **to, const char *source, const char *name, int headers, const char *const *texts, const char *const *names) {
    (void)name; (void)texts; (void)names;
    if (headers || !source) return 4;
    *to = calloc(1, sizeof **to);
    (*to)->source = strdup(source);
    return 0;
}
int nvrtcCompileProgram(program *it, int count, const char *const *options) {
    int known = 0;
    for (int at = 0; at < count; at++) known |= !strncmp(options[at], "--gpu-architecture=sm_90a", 25);
    it->compiled = known;
    return known ? 0 : 6;
}
int nvrtcDestroyProgram(program **it) { free((*it)->source); free(*it); *it = 0; return 0; }
int nvrtcGetProgramLogSize(program *it, size_t *to) { (void)it; *to = 1; return 0; }
int nvrtcGetProgramLog(program *it, char *to) { (void)it; *to = 0; return 0; }
int nvrtcGetCUBINSize(program *it, size_t *to) { *to = strlen(it->source); return it->compiled ? 0 : 4; }
int nvrtcGetCUBIN(program *it, char *to) { memcpy(to, it->source, strlen(it->source)); return it->compiled ? 0 : 4; }
int nvrtcGetPTXSize(program *it, size_t *to) { (void)it; *to = 1; return 0; }
int nvrtcGetPTX(program *it, char *to) { (void)it; *to = 0; return 0; }
