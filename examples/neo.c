#define NEO_IMPLEMENTATION
#include "neo_fsdp.h"
