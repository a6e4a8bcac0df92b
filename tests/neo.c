/* neo.c: the object file of neo that the test programs share. */
#define NEO_IMPLEMENTATION
#include "../neo.h"
