/* curl: the options that all uses of libcurl share.   Private to transfer/object/.   Thread: the owner of the handle.
 * */
#pragma once
#include <curl/curl.h>
#include <stdlib.h>

/* Sets: no signals, no proxy, no redirects, only HTTP and HTTPS, the certificates of AWS_CA_BUNDLE if it is set. */
void curl_common(CURL *h);
