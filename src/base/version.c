/* SPDX-License-Identifier: MIT
 *
 * The library's version as text.
 */
#include <ringforge/ringforge.h>

#define TEXT(x) TEXT_(x)
#define TEXT_(x) #x

const char *rf_version(void)
{
    return TEXT(RF_VERSION_MAJOR) "." TEXT(RF_VERSION_MINOR) "." TEXT(RF_VERSION_PATCH);
}
