/* checked.h: switches neo's own assertions on in the tests (given to the compiler by -include), and
   has other threads take part in the shortest work. */
#ifndef NEO_CHECKED_H
#define NEO_CHECKED_H
#ifdef __cplusplus
extern "C"
#endif
void neo_test_assert_failed(const char *text, const char *file, int line);
#define NEO__WORK_SHARED 1
#define NEO_ASSERT(x) ((x) ? (void)0 : neo_test_assert_failed(#x, __FILE__, __LINE__))
#endif
