/* SPDX-License-Identifier: Apache-2.0 */
/* Ends at once: what a fork and an exec of a static program cost by themselves. */
int main(void)
{
    return 0;
}
