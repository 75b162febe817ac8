//! What an answer of a store means that says no.
//!
//! From: the error of the client, which quotes the answer. Decides whether "404" is about an object or about the whole store, and whether "403" is about what was asked
//! or about who asks. Never: a 404 that does not name the object
//! taken for one that does: to a restore, "there is no such segment" means that the log ends there, and a bucket that was renamed, or a proxy
//! without a backend, would end it.

use std::error::Error as StdError;

/// By these names S3, Google and Azure say that an object is not there.
const NO_OBJECT: [&str; 2] = ["NoSuchKey", "BlobNotFound"];
/// By these names S3, Google and Azure say that they do not know who asks, whatever is asked for. What is not among them may be allowed to somebody else, or
/// to the same for another object.
const NOBODY: [&str; 13] = [
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "InvalidSecurity",
    "TokenRefreshRequired",
    "RequestExpired",
    "RequestTimeTooSkewed",
    "AuthenticationRequired",
    "AuthenticationFailed",
    "InvalidAuthenticationInfo",
    "NoAuthenticationInformation",
    "AccountProblem",
];
/// So Azure says it of one that is to be removed: a batch has no documents in its answers, only this line.
const NO_OBJECT_IN_A_BATCH: &str = "The specified blob does not exist. (code: 404)";
/// What of a message is shown to people.
const LONGEST: usize = 600;

/// Whether it is an object that is not there.
pub(super) fn is_of_an_object(error: &object_store::Error) -> bool {
    let text = whole(error);
    NO_OBJECT.iter().any(|name| text.contains(&format!("<Code>{name}</Code>"))) || text.contains(NO_OBJECT_IN_A_BATCH)
}

/// Whether somebody who may not is told so. Of a listing and of a batch only the text says it.
pub(super) fn is_a_refusal(error: &object_store::Error) -> bool {
    let text = whole(error);
    ["status code: 401", "status code: 403", "(code: 401)", "(code: 403)"].iter().any(|said| text.contains(said))
}

/// Whether the store does not know who asks. A store that says 401 says so by that alone.
pub(super) fn is_of_credentials(error: &object_store::Error) -> bool {
    let text = whole(error);
    matches!(error, object_store::Error::Unauthenticated { .. })
        || NOBODY.iter().any(|name| text.contains(&format!("<Code>{name}</Code>")))
}

/// Whether it is not even a store, or no such bucket, that answered.
pub(super) fn is_of_nothing(error: &object_store::Error) -> bool {
    whole(error).contains("status code: 404") && !is_of_an_object(error)
}

/// What an error says, with its causes, for people.
pub(super) fn said(error: &object_store::Error) -> String {
    plain(&whole(error))
}

fn whole(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.contains(&said) {
            text.push_str(&format!(": {said}"));
        }
        cause = inner.source();
    }
    text
}

/// The request, and in place of the document that a store answers with what it says: its code and message. The rest are names of requests and hosts, and what
/// was signed. How long it took is left out: a message that is another each time looks like news each time.
pub(super) fn plain(text: &str) -> String {
    let head = text.split('<').next().unwrap_or_default();
    let (request, said) = request(head).unwrap_or_default();
    let said = if request.is_empty() { head } else { said };
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts = [
        Some(request.as_str()),
        Some(said.trim_end_matches([':', ' '])),
        element(text, "Code"),
        element(text, "Message"),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    let mut plain = parts.join(": ");
    if let Some((end, _)) = plain.char_indices().nth(LONGEST) {
        plain.truncate(end);
        plain.push('…');
    }
    plain
}

/// The last request that is spoken of, `GET https://…`, and what is said after it.
fn request(text: &str) -> Option<(String, &str)> {
    let (_, rest) = text.rsplit_once("Error performing ")?;
    let (request, said) = rest.split_once(" - ")?;
    let (request, _) = request.split_once(" in ")?;
    Some((request.to_owned(), said))
}

fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once("</").map(|(content, _)| content.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn not_found(said: &str) -> object_store::Error {
        object_store::Error::NotFound {
            path: "wal/x".to_owned(),
            source: format!("Server returned 404: {said}").into(),
        }
    }

    #[test]
    fn an_object_is_missing_only_where_the_store_says_so() {
        for document in
            ["<Error><Code>NoSuchKey</Code></Error>", "<?xml?><Error><Code>BlobNotFound</Code><Message/></Error>"]
        {
            assert!(is_of_an_object(&not_found(document)), "{document}");
        }
        for document in [
            "",
            "<Error><Code>NoSuchBucket</Code></Error>",
            "<Code>ContainerNotFound</Code>",
            "default backend - 404",
            "NoSuchKey",
        ] {
            assert!(!is_of_an_object(&not_found(document)), "{document}");
        }
    }

    #[test]
    fn who_is_not_known_is_told_apart_from_who_is_not_permitted() {
        let denied = |said: &str| object_store::Error::PermissionDenied {
            path: "wal/x".to_owned(),
            source: format!("Server returned 403: {said}").into(),
        };
        assert!(is_of_credentials(&denied("<Error><Code>SignatureDoesNotMatch</Code></Error>")));
        assert!(
            !is_of_credentials(&denied("<Error><Code>AccessDenied</Code></Error>")),
            "it may write, and not delete"
        );
        let unknown = object_store::Error::Unauthenticated { path: String::new(), source: "401".into() };
        assert!(is_of_credentials(&unknown));
    }

    #[test]
    fn of_a_batch_azure_says_it_in_a_line_and_of_another_thing_that_is_missing_another() {
        let of = |reason: &str| not_found(&format!("Bulk delete request failed for key a/b: {reason} (code: 404)"));
        assert!(is_of_an_object(&of("The specified blob does not exist.")));
        assert!(!is_of_an_object(&of("The specified container does not exist.")));
    }

    #[test]
    fn who_may_not_is_told_so_also_where_only_the_text_says_it() {
        let of = |said: &str| object_store::Error::Generic { store: "S3", source: said.to_owned().into() };
        assert!(is_a_refusal(&of(
            "Error performing list request: Server returned non-2xx status code: 403 Forbidden: "
        )));
        assert!(is_a_refusal(&of("Bulk delete request failed for key a: This request is not authorized (code: 403)")));
        assert!(!is_a_refusal(&of("Server returned non-2xx status code: 503 Service Unavailable: <Code>403</Code>")));
    }

    #[test]
    fn people_read_what_the_store_says_and_not_its_document() {
        let text = |took| {
            format!(
                "Generic S3 error: Error performing list request: Error performing PUT http://s3/x in {took}, after 3 retries  - Server returned \
                 403 Forbidden: <?xml version=\"1.0\"?>\\n<Error><Code>SignatureDoesNotMatch</Code><Message>The signature is wrong.</Message>\
                 <StringToSign>AWS4 SECRET</StringToSign></Error>"
            )
        };
        let expected = "PUT http://s3/x: Server returned 403 Forbidden: SignatureDoesNotMatch: The signature is wrong.";
        assert_eq!(plain(&text("1ms")), expected);
        assert_eq!(plain(&text("2.5s")), expected, "the same each time");
        assert_eq!(plain("Unable to open file /x: no room"), "Unable to open file /x: no room");
        assert_eq!(plain("<html><body>502</body></html>"), "");
        assert_eq!(plain(&"ä".repeat(5000)).chars().count(), LONGEST + 1);
    }
}
