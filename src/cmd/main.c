/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

int main(int argc, char **argv)
{
    (void)argc;
    fprintf(stderr, "%s: no command is built in yet\n", argv[0]);
    return 2;
}
