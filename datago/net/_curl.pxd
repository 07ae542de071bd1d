# What _transfers.pyx uses of libcurl (7.68 or later), nothing else.
cdef extern from *:
    """
    #define CURL_DISABLE_TYPECHECK  /* its statement expressions do not fit into what Cython writes */
    #include <curl/curl.h>
    /* Not to wait for a name server that does not answer when a transfer is given up: a lookup has its own thread. */
    static inline void dg_curl_quick_exit(CURL *easy)
    {
    #if LIBCURL_VERSION_NUM >= 0x075700
        curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    #endif
    }
    """
    ctypedef void CURL
    ctypedef void CURLM
    ctypedef int CURLcode
    ctypedef int CURLMcode
    ctypedef int CURLoption
    ctypedef int CURLMoption
    ctypedef int CURLINFO
    ctypedef long long curl_off_t

    ctypedef union CURLdata:
        CURLcode result
    ctypedef struct CURLMsg:
        CURL *easy_handle
        CURLdata data

    enum:
        CURL_GLOBAL_DEFAULT
        CURL_HTTP_VERSION_1_1
        CURL_SOCKET_TIMEOUT
        CURL_WRITEFUNC_PAUSE, CURLPAUSE_CONT
        CURL_CSELECT_IN, CURL_CSELECT_OUT, CURL_CSELECT_ERR
        CURL_POLL_IN, CURL_POLL_OUT, CURL_POLL_INOUT, CURL_POLL_REMOVE

    CURLcode CURLE_OK
    CURLcode CURLE_COULDNT_RESOLVE_PROXY, CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_CONNECT, CURLE_PARTIAL_FILE
    CURLcode CURLE_OPERATION_TIMEDOUT, CURLE_SSL_CONNECT_ERROR, CURLE_GOT_NOTHING, CURLE_SEND_ERROR, CURLE_RECV_ERROR
    CURLcode CURLE_OUT_OF_MEMORY, CURLE_FILESIZE_EXCEEDED, CURLE_WEIRD_SERVER_REPLY, CURLE_UNSUPPORTED_PROTOCOL

    CURLMcode CURLM_OK

    CURLoption CURLOPT_URL, CURLOPT_PRIVATE, CURLOPT_NOSIGNAL, CURLOPT_USERAGENT, CURLOPT_PROXY, CURLOPT_NOPROXY
    CURLoption CURLOPT_CAINFO, CURLOPT_CAPATH, CURLOPT_HTTP_VERSION, CURLOPT_CONNECTTIMEOUT_MS, CURLOPT_BUFFERSIZE, CURLOPT_ERRORBUFFER
    CURLoption CURLOPT_MAXFILESIZE_LARGE
    CURLoption CURLOPT_WRITEFUNCTION, CURLOPT_WRITEDATA, CURLOPT_HEADERFUNCTION, CURLOPT_HEADERDATA

    CURLMoption CURLMOPT_MAXCONNECTS, CURLMOPT_MAX_TOTAL_CONNECTIONS, CURLMOPT_MAX_HOST_CONNECTIONS
    CURLMoption CURLMOPT_SOCKETFUNCTION, CURLMOPT_SOCKETDATA, CURLMOPT_TIMERFUNCTION, CURLMOPT_TIMERDATA

    CURLINFO CURLINFO_PRIVATE, CURLINFO_RESPONSE_CODE, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, CURLINFO_REDIRECT_URL
    CURLINFO CURLINFO_HTTP_CONNECTCODE, CURLINFO_OS_ERRNO, CURLINFO_CONNECT_TIME, CURLINFO_PRETRANSFER_TIME

    CURLcode curl_global_init(long flags)
    const char *curl_version()
    CURL *curl_easy_init() nogil
    CURL *curl_easy_duphandle(CURL *easy) nogil
    void curl_easy_cleanup(CURL *easy) nogil
    CURLcode curl_easy_pause(CURL *easy, int bits) nogil
    CURLcode curl_easy_setopt(CURL *easy, CURLoption option, ...) nogil
    CURLcode curl_easy_getinfo(CURL *easy, CURLINFO info, ...) nogil
    const char *curl_easy_strerror(CURLcode code) nogil
    CURLM *curl_multi_init() nogil
    CURLMcode curl_multi_cleanup(CURLM *multi) nogil
    CURLMcode curl_multi_setopt(CURLM *multi, CURLMoption option, ...) nogil
    CURLMcode curl_multi_add_handle(CURLM *multi, CURL *easy) nogil
    CURLMcode curl_multi_remove_handle(CURLM *multi, CURL *easy) nogil
    CURLMcode curl_multi_socket_action(CURLM *multi, int socket, int events, int *running) nogil
    CURLMsg *curl_multi_info_read(CURLM *multi, int *left) nogil
    void dg_curl_quick_exit(CURL *easy) nogil
