/* inside_comm.h: as inside.h, of neo_comm.h. */
#ifndef NEO_TEST_INSIDE_COMM_H
#define NEO_TEST_INSIDE_COMM_H

#include "neo_comm.h"

#ifdef __cplusplus
extern "C" {
#endif
/* The group of its own through which an input comes; sizeof(neo_comm_input). */
neo_comm *inside_input_group(neo_comm_input *input);
size_t inside_input_bytes(void);
/* neo_comm_desc.timeout_ms of a group alone. */
void inside_set_timeout(neo_comm *comm, int ms);
#ifdef __cplusplus
}
#endif
#endif
