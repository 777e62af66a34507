#ifndef SYMTENSOR_API_DATA_ACCEPT_H
#define SYMTENSOR_API_DATA_ACCEPT_H

/**
 * Choose among media types by an Accept header (RFC 9110 12.5.1): the best quality; of equal ones
 * the first of the list. The most specific range of the header counts for a type.
 *
 * @param header its value; NULL accepts all.
 * @param types  ends with NULL.
 * @return index into types, or -1 when none is acceptable.
 * Thread: any.
 */
int data_accept_choose(const char *header, const char *const *types);

#endif
