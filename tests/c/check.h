/* The whole test framework: CHECK stops the program with the line that failed; DONE prints how many held. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

static int checks;
#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition);    \
            exit(1);                                                                         \
        }                                                                                    \
        checks++;                                                                            \
    } while (0)
#define DONE() (printf("%s: %d checks held\n", __FILE__, checks), 0)

#endif
