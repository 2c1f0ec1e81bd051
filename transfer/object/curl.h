/* curl: what all uses of libcurl have in common.   Private to transfer/object/. */
#pragma once
#include <curl/curl.h>
#include <stdlib.h>

/* No signals, no proxy, no redirects, HTTP and HTTPS alone, the certificates of AWS_CA_BUNDLE where it is set. */
void curl_common(CURL *h);
