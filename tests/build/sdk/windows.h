/* windows.h: what neo's headers use of Microsoft's C library and of Windows, declared by hand from
   its documentation, for syntax checks by clang --target=x86_64-pc-windows-msvc where no SDK is:
   headers.sh puts this file in place of every system header. It proves that neo's headers parse and
   type-check as clang-cl reads them (_MSC_VER, no __GNUC__, long of 32 bits, no POSIX) and ask for
   nothing outside this list. It does not prove that the SDK's own headers agree with it, and
   nothing is linked or run. */
#ifndef SDK_WINDOWS_H
#define SDK_WINDOWS_H
#include <float.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* ---- the C library ---- */
int *_errno(void);
#define errno (*_errno())
#define EINTR 4
#define EAGAIN 11
#define ENOENT 2
#define EINVAL 22
typedef struct FILE FILE;
FILE *__acrt_iob_func(unsigned index);
#define stderr (__acrt_iob_func(2))
FILE *fopen(const char *path, const char *mode);
int fclose(FILE *f);
char *fgets(char *text, int bytes, FILE *f);
int fputs(const char *text, FILE *f);
int ferror(FILE *f);
int getc(FILE *f);
int fseek(FILE *f, long at, int from);
long ftell(FILE *f);
#define SEEK_SET 0
#define SEEK_END 2
#define EOF (-1)
int fprintf(FILE *f, const char *format, ...);
int vfprintf(FILE *f, const char *format, va_list args);
int snprintf(char *text, size_t bytes, const char *format, ...);
int vsnprintf(char *text, size_t bytes, const char *format, va_list args);
void *memcpy(void *to, const void *from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *to, int byte, size_t bytes);
int memcmp(const void *a, const void *b, size_t bytes);
void *memchr(const void *p, int byte, size_t bytes);
size_t strlen(const char *text);
int strcmp(const char *a, const char *b);
int strncmp(const char *a, const char *b, size_t bytes);
char *strcat(char *to, const char *from);
char *strcpy(char *to, const char *from);
char *strchr(const char *text, int c);
char *strrchr(const char *text, int c);
char *strstr(const char *text, const char *part);
char *strerror(int number);
size_t strspn(const char *text, const char *set);
size_t strcspn(const char *text, const char *set);
char *getenv(const char *name);
long strtol(const char *text, char **end, int base);
long long strtoll(const char *text, char **end, int base);
unsigned long long strtoull(const char *text, char **end, int base);
float strtof(const char *text, char **end);
double strtod(const char *text, char **end);
int atoi(const char *text);
void *malloc(size_t bytes);
void free(void *p);
void *_aligned_malloc(size_t bytes, size_t align);
void _aligned_free(void *p);
int abs(int x);
typedef long long time_t;
time_t time(time_t *t);
void qsort(void *list, size_t count, size_t size, int (*compare)(const void *, const void *));
void *bsearch(const void *key, const void *list, size_t count, size_t size,
              int (*compare)(const void *, const void *));
double fabs(double x);
float fabsf(float x);
double sqrt(double x);
float sqrtf(float x);
double ldexp(double x, int power);
double frexp(double x, int *power);
double floor(double x);
double ceil(double x);
double log(double x);
double log10(double x);
double exp(double x);
double pow(double x, double y);
#define INFINITY ((float)(1e300 * 1e300))
#define NAN (-(float)(INFINITY * 0.0F))
#define isnan(x) __builtin_isnan(x)
#define isinf(x) __builtin_isinf(x)
#define isfinite(x) __builtin_isfinite(x)
#define PRId32 "d"
#define PRIu32 "u"
#define PRIx32 "x"
#define PRId64 "lld"
#define PRIu64 "llu"
#define PRIx64 "llx"
#define PRIX64 "llX"

/* ---- Windows ---- */
#define WINAPI __stdcall
typedef int BOOL;
typedef unsigned long DWORD;
typedef unsigned short WORD;
typedef long LONG;
typedef void *HANDLE, *LPVOID;
#define TRUE 1
#define FALSE 0
#define INFINITE 0xFFFFFFFF
#define MAX_PATH 260
#define INVALID_HANDLE_VALUE ((HANDLE)(intptr_t)-1)
typedef struct RTL_SRWLOCK { void *p; } SRWLOCK;
typedef struct RTL_CONDITION_VARIABLE { void *p; } CONDITION_VARIABLE;
void InitializeSRWLock(SRWLOCK *l);
void AcquireSRWLockExclusive(SRWLOCK *l);
void ReleaseSRWLockExclusive(SRWLOCK *l);
void InitializeConditionVariable(CONDITION_VARIABLE *c);
void WakeConditionVariable(CONDITION_VARIABLE *c);
void WakeAllConditionVariable(CONDITION_VARIABLE *c);
BOOL SleepConditionVariableSRW(CONDITION_VARIABLE *c, SRWLOCK *l, DWORD ms, unsigned long flags);
typedef DWORD(WINAPI *LPTHREAD_START_ROUTINE)(LPVOID arg);
HANDLE CreateThread(void *attributes, size_t stack, LPTHREAD_START_ROUTINE start, LPVOID arg,
                    DWORD flags, DWORD *id);
DWORD WaitForSingleObject(HANDLE h, DWORD ms);
BOOL CloseHandle(HANDLE h);
BOOL SwitchToThread(void);
void Sleep(DWORD ms);
typedef struct SYSTEM_INFO { DWORD dwNumberOfProcessors; } SYSTEM_INFO;
void GetSystemInfo(SYSTEM_INFO *info);
typedef union LARGE_INTEGER { long long QuadPart; } LARGE_INTEGER;
BOOL QueryPerformanceCounter(LARGE_INTEGER *t);
BOOL QueryPerformanceFrequency(LARGE_INTEGER *f);
DWORD GetLastError(void);
void SetLastError(DWORD code);
DWORD FormatMessageA(DWORD flags, const void *source, DWORD id, DWORD language, char *text,
                     DWORD size, va_list *args);
int MultiByteToWideChar(unsigned page, DWORD flags, const char *text, int bytes, wchar_t *wide,
                        int count);
int WideCharToMultiByte(unsigned page, DWORD flags, const wchar_t *wide, int count, char *text,
                        int bytes, const char *other, BOOL *used);
typedef struct OVERLAPPED {
    uintptr_t Internal, InternalHigh;
    DWORD Offset, OffsetHigh;
    HANDLE hEvent;
} OVERLAPPED;
typedef struct FILETIME { DWORD dwLowDateTime, dwHighDateTime; } FILETIME;
typedef struct WIN32_FIND_DATAW {
    DWORD dwFileAttributes;
    FILETIME ftCreationTime, ftLastAccessTime, ftLastWriteTime;
    DWORD nFileSizeHigh, nFileSizeLow, dwReserved0, dwReserved1;
    wchar_t cFileName[MAX_PATH], cAlternateFileName[14];
} WIN32_FIND_DATAW;
HANDLE CreateFileW(const wchar_t *path, DWORD access, DWORD share, void *security, DWORD how,
                   DWORD flags, HANDLE like);
BOOL ReadFile(HANDLE h, void *data, DWORD bytes, DWORD *done, OVERLAPPED *place);
BOOL WriteFile(HANDLE h, const void *data, DWORD bytes, DWORD *done, OVERLAPPED *place);
BOOL SetFilePointerEx(HANDLE h, LARGE_INTEGER to, LARGE_INTEGER *at, DWORD from);
BOOL GetFileSizeEx(HANDLE h, LARGE_INTEGER *size);
BOOL GetFileTime(HANDLE h, FILETIME *made, FILETIME *read, FILETIME *written);
BOOL FlushFileBuffers(HANDLE h);
BOOL SetEndOfFile(HANDLE h);
DWORD GetFileType(HANDLE h);
HANDLE GetStdHandle(DWORD which);
DWORD GetFileAttributesW(const wchar_t *path);
BOOL DeleteFileW(const wchar_t *path);
BOOL MoveFileExW(const wchar_t *from, const wchar_t *to, DWORD flags);
BOOL CreateDirectoryW(const wchar_t *path, void *security);
BOOL RemoveDirectoryW(const wchar_t *path);
HANDLE FindFirstFileW(const wchar_t *pattern, WIN32_FIND_DATAW *found);
BOOL FindNextFileW(HANDLE h, WIN32_FIND_DATAW *found);
BOOL FindClose(HANDLE h);
typedef BOOL(WINAPI *PHANDLER_ROUTINE)(DWORD event);
BOOL SetConsoleCtrlHandler(PHANDLER_ROUTINE handler, BOOL add);
#define FORMAT_MESSAGE_FROM_SYSTEM 0x1000
#define FORMAT_MESSAGE_IGNORE_INSERTS 0x200
#define CP_UTF8 65001
#define MB_ERR_INVALID_CHARS 8
#define GENERIC_READ 0x80000000L
#define GENERIC_WRITE 0x40000000L
#define FILE_APPEND_DATA 4
#define OPEN_EXISTING 3
#define CREATE_ALWAYS 2
#define OPEN_ALWAYS 4
#define FILE_SHARE_READ 1
#define FILE_SHARE_WRITE 2
#define FILE_SHARE_DELETE 4
#define FILE_ATTRIBUTE_NORMAL 0x80
#define FILE_ATTRIBUTE_DIRECTORY 0x10
#define FILE_ATTRIBUTE_REPARSE_POINT 0x400
#define FILE_FLAG_DELETE_ON_CLOSE 0x04000000
#define INVALID_FILE_ATTRIBUTES ((DWORD)-1)
#define FILE_BEGIN 0
#define FILE_TYPE_DISK 1
#define STD_INPUT_HANDLE ((DWORD)-10)
#define MOVEFILE_REPLACE_EXISTING 1
#define MOVEFILE_WRITE_THROUGH 8
#define ERROR_FILE_NOT_FOUND 2L
#define ERROR_PATH_NOT_FOUND 3L
#define ERROR_NO_MORE_FILES 18L
#define ERROR_SHARING_VIOLATION 32L
#define ERROR_HANDLE_EOF 38L
#define ERROR_BROKEN_PIPE 109L
#define ERROR_ALREADY_EXISTS 183L
#define CTRL_C_EVENT 0
#define CTRL_BREAK_EVENT 1

#ifdef __cplusplus
}
#endif
#endif
