/* neo.c: neo.h and the headers that are implemented with it, as the tests link them. */
#include "neo_serve.h"
#include "neo_store.h"
