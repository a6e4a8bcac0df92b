/* inside_comm.c: neo_comm.h as the tests implement it, and what inside_comm.h asks of it. */
#ifndef NEO_COMM_IMPLEMENTATION
#define NEO_COMM_IMPLEMENTATION
#endif
#include "inside_comm.h"

neo_comm *inside_input_group(neo_comm_input *input) { return input->group; }
size_t inside_input_bytes(void) { return sizeof(neo_comm_input); }
void inside_set_timeout(neo_comm *comm, int ms) { comm->desc.timeout_ms = ms; }
