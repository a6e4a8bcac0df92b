#define NEO_IMPLEMENTATION
#include "neo_data.h"
#include "neo_store.h"
#include "neo_fsdp.h"
